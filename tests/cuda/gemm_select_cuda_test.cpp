// Which row family gemm picks on devices of several capabilities.
#include <string>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/quant/quantizer.h"
#include "cuda/same_as_cpu.h"
#include "emulation/cuda/emulation.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

struct Capability {
  int major, minor;
  bool wgmma;
};
// Puts the capability of the emulated devices back.
class WithCapability {
 public:
  explicit WithCapability(Capability c) { cuda::emulation::set_capability(c.major, c.minor, c.wgmma); }
  ~WithCapability() { cuda::emulation::set_capability(9, 0, true); }
};

GemmArgs product(DType a, DType b, int64_t m, int64_t n, int64_t k) {
  GemmArgs args;
  args.m = m, args.n = n, args.k = k, args.ldc = n;
  args.a.dtype = a;
  args.b.dtype = b;
  args.a.stride = row_bytes_memory(a, k);
  args.b.stride = row_bytes_memory(b, k);
  return args;
}
std::string chosen(Capability c, const GemmArgs& args) {
  const WithCapability with(c);
  const DeviceGuard guard(Device::cuda(0));
  return std::string(select_gemm(args).name);
}
bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

constexpr Capability kAll[] = {{8, 0, false}, {9, 0, false}, {10, 0, false}, {12, 0, false}};

TEST_CASE("gemm on CUDA: rows are chosen by capability and shape") {
  for (const Capability c : kAll) {
    INFO("capability " << c.major << '.' << c.minor);
    const bool bits = c.major < 10;
    INFO(chosen(c, product(dtypes::int8, dtypes::int8, 8192, 4096, 4096)));
    CHECK(has(chosen(c, product(dtypes::int8, dtypes::int8, 8192, 4096, 4096)), "gemm_s8_s8_mma"));
    CHECK(has(chosen(c, product(dtypes::int8, dtypes::int4, 8192, 4096, 4096)), "gemm_s8_w_mma"));
    CHECK(has(chosen(c, product(dtypes::bint1, dtypes::bint1, 8192, 4096, 4096)),
              bits ? "gemm_b1_b1_mma" : "gemm_s8_s8_mma"));
    CHECK(has(chosen(c, product(dtypes::int8, dtypes::int4, 1, 4096, 4096)), "dp4a"));
    CHECK(has(chosen(c, product(dtypes::bint1, dtypes::bint1, 1, 4096, 4096)), "popc"));
    CHECK(has(chosen(c, product(dtypes::ternary, dtypes::bint1, 2, 4096, 4096)), "popc"));
    CHECK(has(chosen(c, product(dtypes::int32, dtypes::int8, 100, 100, 100)), "gemm_int_simt"));
    CHECK(has(chosen(c, product(dtypes::fp32, dtypes::fp32, 100, 100, 100)), "chain512"));
  }
}

TEST_CASE("gemm on CUDA: products with empty outputs or sums have a cost in every kernel that supports them") {
  alignas(16) static const int8_t kData[16] = {};
  const WithCapability with(kAll[1]);
  const DeviceGuard guard(Device::cuda(0));
  int asked = 0;
  for (const DType a : {dtypes::int8, dtypes::bint1, dtypes::fp32, dtypes::bf16})
    for (const DType b : {dtypes::int8, dtypes::int4, dtypes::bint1, dtypes::fp32})
      for (const int64_t m : {0, 200})
        for (const int64_t n : {0, 200})
          for (const int64_t k : {0, 4096}) {
            if (m * n * k != 0) continue;
            GemmArgs args = product(a, b, m, n, k);
            args.a.data = args.b.data = kData;
            INFO(a << " x " << b << ", m " << m << ", n " << n << ", k " << k);
            for (const GemmKernel& kernel : gemm_kernels()) {
              if (kernel.device != DeviceKind::kCuda || !kernel.usable(args)) continue;
              const double cost = kernel.cost(args);
              INFO(kernel.name);
              CHECK((cost >= 0 && cost < 1e9));
              ++asked;
            }
          }
  CHECK(asked > 200);
}

TEST_CASE("gemm on CUDA: strict mode has the CPU's order of summation") {
  set_bits_mode(BitsMode::kStrict);
  for (const DType b : {dtypes::fp32, dtypes::bint1, dtypes::ternary, dtypes::int4}) {
    for (const int64_t n : {100, 300}) {
      const GemmArgs args = product(dtypes::fp32, b, 20, n, 100);
      const SumOrder cpu = select_gemm(args).order;
      const WithCapability with(kAll[1]);
      const DeviceGuard guard(Device::cuda(0));
      INFO(b << ", n " << n);
      CHECK(select_gemm(args).order == cpu);
      CHECK(select_gemm(args).device == DeviceKind::kCuda);
    }
  }
  set_bits_mode(BitsMode::kFast);
}

TEST_CASE("gemm on CUDA: floats times codes go to tensor cores in fast mode") {
  static const float kScale = 1;
  for (const Capability c : kAll) {
    INFO("capability " << c.major << '.' << c.minor);
    for (const DType b : {dtypes::bint1, dtypes::ternary, dtypes::int3, dtypes::uint4, dtypes::int8}) {
      CHECK(chosen(c, product(dtypes::fp32, b, 512, 4096, 4096)) == "gemm_f32_w_mma");
      CHECK(chosen(c, product(dtypes::bf16, b, 512, 4096, 4096)) == "gemm_bf16_w_mma");
    }
    // A gradient of x with a scale along k: bf16 is no longer bf16 once it is folded in.
    GemmArgs gx = product(dtypes::bf16, dtypes::int4, 512, 4096, 1024);
    gx.b.k_major = gx.fold_b_scale = true;
    gx.b.stride = row_bytes_memory(dtypes::int4, 4096);
    CHECK(chosen(c, gx) == "gemm_bf16_w_mma");
    gx.b.scale = {&kScale, nullptr, nullptr, 1, 0, 1, 1};
    CHECK(chosen(c, gx) == "gemm_f32_w_mma");
    CHECK(has(chosen(c, product(dtypes::fp32, dtypes::nf4, 512, 4096, 4096)), "chain512"));
    GemmArgs alone = product(dtypes::fp32, dtypes::int4, 512, 4096, 4096);
    alone.row_alone = true;
    CHECK(has(chosen(c, alone), "chain512"));
  }
}

TEST_CASE("codes of one bit carry the sums of their rows where wgmma reads them") {
  const DeviceGuard guard(test::gpu());
  QuantSpec spec;
  spec.dtype = dtypes::bint1;
  spec.scheme = "binary";
  spec.granularity = Granularity::tensor();
  const Tensor x = test::here(test::host_numbers({4, 70}, 3));
  CHECK(quantize_dynamic(spec, x).row_sums().defined());
  const WithCapability without(kAll[0]);
  CHECK_FALSE(quantize_dynamic(spec, x).row_sums().defined());
}

TEST_CASE("gemm on CUDA: an fp64 product is an error, not a product of the CPU") {
  const DeviceGuard guard(Device::cuda(0));
  const std::string text = "fp64 is the reference dtype of the CPU, but the current device is cuda:0";
  GemmArgs wide = product(dtypes::int8, dtypes::int8, 3, 3, 3);
  wide.c_dtype = dtypes::fp64;
  for (const GemmArgs& args :
       {product(dtypes::fp64, dtypes::fp64, 3, 3, 3), product(dtypes::fp32, dtypes::fp64, 3, 3, 3), wide}) {
    CHECK(test::contains(test::error_of([&] { select_gemm(args); }), text));
    CHECK(test::contains(test::error_of([&] { plan_gemm(args); }), text));
    CHECK(test::error_code_of([&] { gemm(args); }) == static_cast<int>(ErrorCode::kDevice));
  }
  // Other operands that no row takes keep their own text.
  GemmArgs none = product(dtypes::int8, dtypes::int8, 3, 3, 3);
  none.a.layout = layouts::planes;
  CHECK(test::contains(test::error_of([&] { select_gemm(none); }), "no kernel for these operands"));
}

}  // namespace
}  // namespace bitgrad
