// Products for few rows of A: supported operands and launches.
#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/simt/args.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::gemm {
namespace {

constexpr int64_t kMostRows = 64;
// With fewer columns, one warp per column would leave most of the device idle.
constexpr int64_t kFewColumns = 2048, kDeep = 2048;

using SimtKernel = void (*)(SimtArgs);

bool few_rows(const GemmArgs& args) {
  return exact_sum(args) && args.m <= kMostRows && !args.a.k_major && !args.b.k_major;
}

SimtSide side_of(const GemmOperand& x, int64_t k) {
  SimtSide side{};
  side.data = static_cast<const uint32_t*>(x.data);
  side.stride = x.stride / 4;
  side.words = 2 * gemm_detail::ceil_div(k * x.dtype.bits(), 64);
  side.form = operand_of(x).form;
  side.aligned16 = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 16 == 0;
  return side;
}

void launch_simt(const GemmArgs& args, SimtKernel kernel, SimtArgs& k, const char* name) {
  if (args.m <= 0 || args.n <= 0) return;
  k.out = output_of(args);
  k.pa = free_params(operand_of(args.a));
  k.pb = free_params(operand_of(args.b));
  const ScaleMap &sa = args.a.scale, &sb = args.b.scale;
  k.simple = sa.zero == nullptr && sb.zero == nullptr && sa.offset == nullptr && sb.offset == nullptr &&
             args.row_minus == nullptr;
  k.sum_a = sb.zero != nullptr || sb.offset != nullptr || k.b.shift != 0;
  k.sum_b = sa.zero != nullptr || sa.offset != nullptr || k.a.shift != 0;
  constexpr int kWarps = kSimtThreads / 32;
  k.split = args.n < kFewColumns && args.k >= kDeep ? kWarps : 1;
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(gemm_detail::ceil_div(args.n, kWarps / k.split));
  shape.grid.y = static_cast<unsigned>(gemm_detail::ceil_div(args.m, kSimtRows));
  shape.block.x = kSimtThreads;
  shape.name = name;
  launch(kernel, shape, k);
}

// B is read once per block of four rows. The multiply-adds run at `macs_per_ns` on the whole device.
double simt_cost(const GemmArgs& args, double macs_per_ns) {
  const double passes = static_cast<double>(gemm_detail::ceil_div(args.m, kSimtRows));
  const double bytes = passes * operand_bytes(args.b, args.n, args.k) + operand_bytes(args.a, args.m, args.k);
  return kLaunchNs + bytes / kBytesPerNs + gemm_detail::multiply_adds(args) / macs_per_ns;
}

}  // namespace
}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

bool gemm_bits_popc_simt_supports(const GemmArgs& args) {
  return few_rows(args) && args.a.dtype.bits() <= 2 && args.b.dtype.bits() <= 2 && args.k <= int64_t{1} << 24;
}
double gemm_bits_popc_simt_cost(const GemmArgs& args) {
  return simt_cost(args, 40e3 / (args.a.dtype.bits() * args.b.dtype.bits()));
}
void gemm_bits_popc_simt(const GemmArgs& args) {
  static constexpr SimtKernel kKernels[2][2] = {{gemm_b1_b1_popc_simt, gemm_b1_b2_popc_simt},
                                                {gemm_b2_b1_popc_simt, gemm_b2_b2_popc_simt}};
  SimtArgs k{};
  const auto bits = [&](const GemmOperand& x) {
    SimtSide side = side_of(x, args.k);
    for (int p = 0; p < x.dtype.bits(); ++p) side.weight[p] = plane_weight(x.dtype, p);
    side.shift = x.dtype.kind() == DTypeKind::kSign ? -1 : 0;
    return side;
  };
  k.a = bits(args.a);
  k.b = bits(args.b);
  launch_simt(args, kKernels[args.a.dtype.bits() - 1][args.b.dtype.bits() - 1], k, "gemm_bits_popc_simt");
}

bool gemm_s8_w_dp4a_simt_supports(const GemmArgs& args) {
  // Unsigned bytes are processed with 128 subtracted.
  const auto max = [](DType d) { return d.bits() == 8 ? int64_t{128} : largest_code(d); };
  return few_rows(args) && args.a.dtype.bits() == 8 && fits_int32(args, max(args.a.dtype), max(args.b.dtype));
}
double gemm_s8_w_dp4a_simt_cost(const GemmArgs& args) { return simt_cost(args, 12e3); }
void gemm_s8_w_dp4a_simt(const GemmArgs& args) {
  static constexpr SimtKernel kKernels[] = {gemm_s8_w1_dp4a_simt, gemm_s8_w2_dp4a_simt, gemm_s8_w3_dp4a_simt,
                                            gemm_s8_w4_dp4a_simt, gemm_s8_w5_dp4a_simt, gemm_s8_w6_dp4a_simt,
                                            gemm_s8_w7_dp4a_simt, gemm_s8_w8_dp4a_simt};
  const auto bytes = [&](const GemmOperand& x) {
    SimtSide side = side_of(x, args.k);
    side.shift = x.dtype.bits() == 8 && x.dtype.kind() == DTypeKind::kUint ? 128 : 0;
    return side;
  };
  SimtArgs k{};
  k.a = bytes(args.a);
  k.b = bytes(args.b);
  launch_simt(args, kKernels[args.b.dtype.bits() - 1], k, "gemm_s8_w_dp4a_simt");
}

}  // namespace bitgrad::cuda::gemm_impl
