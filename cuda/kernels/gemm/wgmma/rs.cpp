// Kernel gemm_s8_w_wgmma: 8-bit activations A (int8, uint8) and weights B of 1 to 7 bits (int, uint, sign) in layout
// frag64. Computes C^T = B A^T, so that the weights are the operand that comes from registers.
#include "bitgrad/base/memory.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/kernels.h"
#include "cuda/runtime/runtime.h"
#include "dtype/layouts/frag64.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {
namespace {

// log2 of the factor between the unpacked bytes and the code values.
int32_t shift_of(DType dtype) {
  switch (dtype.kind()) {
    case DTypeKind::kSign:
      return 0;
    case DTypeKind::kUint:
      return 7 - dtype.bits();
    default:
      return 8 - dtype.bits();
  }
}

FragmentOperand fragments_of(const GemmArgs& args) {
  FragmentOperand out;
  out.data = static_cast<const uint8_t*>(args.b.data);
  out.row_blocks = static_cast<int32_t>(frag64_layout::row_blocks(args.n));
  if (args.b.dtype.kind() == DTypeKind::kUint) {
    out.down = 1;  // a code has at most 7 bits, so the lowest bit of its byte is 0
  } else if (args.b.dtype.kind() == DTypeKind::kSign) {
    out.down = 7;
    out.mask = 0x01010101u;
    out.times = 254;
    out.flip = ~0u;
  }
  return out;
}

bool supports(const GemmArgs& args) {
  const GemmOperand &a = args.a, &b = args.b;
  if (a.dtype.bits() != 8 || !wgmma_operand(a, args.batch.a) || b.k_major || b.dtype.bits() > 7) return false;
  if (args.batch.b % 16 != 0) return false;
  if (!gemm_detail::has_small_integer_codes(a.dtype) || !gemm_detail::has_small_integer_codes(b.dtype)) return false;
  const auto weight = static_cast<double>(largest_code(b.dtype) << shift_of(b.dtype));
  return wgmma_product(args, static_cast<double>(largest_code(a.dtype)) * weight);
}

// Computes sum_b, the sums of the weights' code values.
void sum_weights(const GemmArgs& args, const FragmentOperand& fragments, int32_t k_blocks, int32_t* out) {
  const int64_t filled = k_blocks * frag64_layout::kColumns - args.k;
  const FragmentSumsArgs sums{fragments,
                              k_blocks,
                              args.b.dtype.bits(),
                              shift_of(args.b.dtype),
                              static_cast<int32_t>(args.b.dtype.kind() == DTypeKind::kSign ? -filled : 0),
                              args.n,
                              out};
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(fragments.row_blocks);
  shape.block.x = frag64_layout::kThreads;
  shape.name = "gemm_fragment_sums_simt";
  launch(&gemm_fragment_sums_simt, shape, sums);
}

}  // namespace

void run_wgmma_rs(const GemmArgs& args, TileForm form, int blocks) {
  if (args.m == 0 || args.n == 0) return;
  WgmmaArgs out = common_args(args);
  out.rule.factor_b = 1;  // the bytes already are the code values
  out.rule.base_b = 0;
  out.rule.shift = shift_of(args.b.dtype);
  out.rule.plain = !out.rule.wide;
  out.fragments = fragments_of(args);
  out.k_blocks = static_cast<int32_t>(frag64_layout::column_blocks(args.k));
  const Workspace sums((args.m + args.n) * 4);
  sum_codes(args, args.b.scale.zero != nullptr, false, sums.as<int32_t>(), out.rule);
  if (args.a.scale.zero != nullptr) {
    out.rule.sum_b = sums.as<int32_t>() + args.m;
    sum_weights(args, out.fragments, out.k_blocks, sums.as<int32_t>() + args.m);
  }
  out.columns = make_tensor_map(args.a.data, args.k, args.m, args.a.stride, form.columns / form.cluster);
  const WgmmaType type = args.a.dtype.kind() == DTypeKind::kUint ? WgmmaType::kS8U8 : WgmmaType::kS8S8;
  // Only wide tiles can store from fragments.
  const WgmmaStore planned = plan_store(args, true, out);
  const WgmmaStore store = form.columns == kWideTile256.columns ? planned : WgmmaStore::kGeneral;
  const NamedWgmmaKernel& kernel = wgmma_kernel(type, args.b.dtype.bits(), form, store);
  launch_tiles(kernel.run, kernel.name, out, args.n, args.m, form, kernel.bits, blocks);
}

}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

bool gemm_s8_w_wgmma_supports(const GemmArgs& args) { return gemm::supports(args); }
double gemm_s8_w_wgmma_cost(const GemmArgs& args) { return gemm::tiles_cost(args, args.n, args.m, args.k, false); }
void gemm_s8_w_wgmma(const GemmArgs& args) {
  gemm::run_wgmma_rs(args, gemm::choose_form(args.n, args.m, args.k, false), gemm::multiprocessors());
}

}  // namespace bitgrad::cuda::gemm_impl
