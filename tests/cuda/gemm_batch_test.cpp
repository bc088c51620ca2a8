// Batches of products on the emulated device: every kernel has the bits of the products one by one, and the choice
// keeps kernels that read 16 bytes at once from members that begin elsewhere.
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "cuda/on_device.h"
#include "cuda/same_as_cpu.h"
#include "support/catch.h"
#include "support/gemm_batch.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::BatchForm;
using test::BatchPair;
using test::BatchProblem;
using test::Carried;

// One side of a batch on the device.
class CarriedSide {
 public:
  explicit CarriedSide(const test::BatchSide& side)
      : operand_(side.operand()),
        codes_(operand_.data, side.bytes()),
        scale_(operand_.scale.scale, side.parameters() * 4),
        zero_(operand_.scale.zero, side.parameters() * 4),
        offset_(operand_.scale.offset, side.parameters() * 4) {
    operand_.data = codes_.as<void>();
    operand_.scale.scale = scale_.as<float>();
    operand_.scale.zero = zero_.as<int32_t>();
    operand_.scale.offset = offset_.as<float>();
  }
  const GemmOperand& operand() const { return operand_; }

 private:
  GemmOperand operand_;
  Carried codes_, scale_, zero_, offset_;
};

// What `run` writes into C when everything lies on the device: the batch, or its members one by one.
template <typename Run>
std::vector<uint8_t> on_the_device(const BatchProblem& problem, const BatchForm& form, bool as_batch, Run&& run) {
  const CarriedSide a(problem.a), b(problem.b);
  const Carried c(problem.c_before.data(), static_cast<int64_t>(problem.c_before.size()));
  const Carried bias(problem.bias.data(), static_cast<int64_t>(problem.bias.size()) * 4);
  const Carried minus(problem.minus.data(), static_cast<int64_t>(problem.minus.size()) * 8);
  const GemmArgs full = problem.args(a.operand(), b.operand(), bias.as<float>(), minus.as<int64_t>(), c.as<void>());
  if (as_batch) {
    run(full);
  } else {
    for (int64_t i = 0; i < form.count; ++i) run(problem.member(full, i));
  }
  cuda::device_synchronize();
  std::vector<uint8_t> out(problem.c_before.size());
  c.fetch(out.data());
  return out;
}

TEST_CASE("gemm on CUDA: a batch has the bits of its products one by one, by every kernel") {
  const DeviceGuard guard(test::gpu());
  std::mt19937 rng(191);
  for (const GemmKernel& kernel : cuda::cuda_gemm_kernels()) {
    if (kernel.name.find("cublaslt") != std::string_view::npos) continue;  // there is none to call here
    if ((kernel.needs & ~device_isa()) != 0) continue;
    int taken = 0;
    for (const BatchPair& pair : test::batch_pairs())
      for (const int64_t count : {0, 1, 2, 7}) {
        BatchForm form = test::random_form(rng, pair, count);
        if (!kernel.supports(test::form_args(form))) {
          const BatchForm drawn = form;
          form = {};
          form.pair = pair;
          form.m = drawn.m, form.n = drawn.n, form.k = drawn.k, form.count = count;
          form.beside = drawn.beside, form.shared_b = drawn.shared_b;
        }
        const bool wgmma = kernel.name.find("wgmma") != std::string_view::npos;
        if (wgmma) form.k = 128, form.unit = 16;  // TMA reads rows that begin on 16 bytes
        if (!wgmma && !kernel.supports(test::form_args(form))) continue;
        if (!kernel.a_layout.info().supports(form.pair.a) || !kernel.b_layout.info().supports(form.pair.b)) continue;
        const BatchProblem problem(rng, form, kernel.a_layout, kernel.b_layout);
        INFO(kernel.name << ' ' << pair.a << " x " << pair.b << " m " << form.m << " n " << form.n << " k " << form.k
                         << ", members " << count);
        std::vector<uint8_t> alone;
        bool served = true;
        const std::vector<uint8_t> batch = on_the_device(problem, form, true, [&](const GemmArgs& args) {
          GemmArgs canonical = args;
          canonical.a.layout = canonical.b.layout = layouts::canonical;
          served = kernel.supports(canonical);
          if (served) kernel.run(args);
        });
        if (!served) continue;
        ++taken;
        alone = on_the_device(problem, form, false, kernel.run);
        const bool equal = batch == alone;
        REQUIRE(equal);
        const bool written = batch != problem.c_before;
        if (count > 0) REQUIRE(written);
      }
    INFO(kernel.name);
    CHECK(taken > 0);
  }
}

TEST_CASE("gemm on CUDA: kernels that load by TMA are not chosen for members that begin between 16 bytes") {
  for (const GemmKernel& kernel : cuda::cuda_gemm_kernels()) {
    if (kernel.name.find("wgmma") == std::string_view::npos) continue;
    const bool bits = kernel.name.find("b1_b1") != std::string_view::npos;
    GemmArgs args;
    args.m = args.n = args.ldc = 64;
    args.k = 128;
    args.a.dtype = bits ? dtypes::bint1 : dtypes::int8;
    args.b.dtype = bits                                                ? dtypes::bint1
                   : kernel.name.find("_w_") != std::string_view::npos ? dtypes::int4
                                                                       : dtypes::int8;
    args.a.stride = args.b.stride = 128;
    args.batch = {3, 8192, 8192, 4096};
    INFO(kernel.name);
    CHECK(kernel.supports(args));
    args.batch.a = 8200;
    CHECK_FALSE(kernel.supports(args));
    args.batch = {3, 8192, 8200, 4096};
    CHECK_FALSE(kernel.supports(args));
    args.batch = {3, 8192, 0, 4096};
    CHECK(kernel.supports(args));
  }
}

}  // namespace
}  // namespace bitgrad
