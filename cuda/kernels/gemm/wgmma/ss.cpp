// The wgmma kernels with both operands in shared memory:
//   gemm_s8_s8_wgmma  8-bit codes of kind int or uint on either side
//   gemm_b1_b1_wgmma  one-bit codes: bint1 and int1 on either side
#include <algorithm>

#include "bitgrad/base/memory.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/wgmma/kernels.h"
#include "cuda/kernels/gemm/wgmma/output.h"
#include "cuda/runtime/runtime.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {
namespace {

WgmmaType type_of(const GemmArgs& args) {
  if (args.a.dtype.bits() == 1) return WgmmaType::kB1;
  const bool a = args.a.dtype.kind() == DTypeKind::kUint, b = args.b.dtype.kind() == DTypeKind::kUint;
  return a ? (b ? WgmmaType::kU8U8 : WgmmaType::kU8S8) : (b ? WgmmaType::kS8U8 : WgmmaType::kS8S8);
}

int64_t k_bytes(const GemmArgs& args) { return (args.k * args.a.dtype.bits() + 7) / 8; }

bool supports(const GemmArgs& args, int bits) {
  const auto fits = [bits](const GemmOperand& x, int64_t step) {
    return x.dtype.bits() == bits && wgmma_operand(x, step);
  };
  const auto largest = [](DType dtype) { return static_cast<double>(dtype.bits() == 1 ? 1 : largest_code(dtype)); };
  // Whole bytes are multiplied, so bits past k, which other kernels ignore, would count.
  return args.k * bits % 8 == 0 && fits(args.a, args.batch.a) && fits(args.b, args.batch.b) &&
         wgmma_product(args, largest(args.a.dtype) * largest(args.b.dtype));
}

// Whether there are kernels whose consumers take turns for this product.
bool has_turns(const GemmArgs& args) {
  const WgmmaType type = type_of(args);
  return (type == WgmmaType::kS8S8 || type == WgmmaType::kB1) && stores_fragments(args, false);
}
int parts_of(const GemmArgs& args) { return split_parts(args.m, args.n, k_bytes(args), has_turns(args)); }

double cost(const GemmArgs& args) {
  return tiles_cost(args, args.m, args.n, k_bytes(args), has_turns(args), parts_of(args));
}

void run(const GemmArgs& args) {
  if (const int parts = parts_of(args); parts > 1) return run_wgmma_split(args, parts, multiprocessors());
  run_wgmma_ss(args, choose_form(args.m, args.n, k_bytes(args), has_turns(args)), multiprocessors());
}

// sums has space for [m + n] sums of codes.
WgmmaArgs arguments(const GemmArgs& args, TileForm form, const Workspace& sums) {
  const int64_t bytes = k_bytes(args);
  WgmmaArgs out = common_args(args);
  sum_codes(args, needs_sums_a(args), needs_sums_b(args), sums.as<int32_t>(), out.rule);
  out.k_blocks = static_cast<int32_t>((bytes + kBlockBytes - 1) / kBlockBytes);
  out.rows = make_tensor_map(args.a.data, bytes, args.m, args.a.stride, form.rows);
  out.columns = make_tensor_map(args.b.data, bytes, args.n, args.b.stride, form.columns / form.cluster);
  return out;
}

}  // namespace

void run_wgmma_ss(const GemmArgs& args, TileForm form, int blocks) {
  if (args.m == 0 || args.n == 0) return;
  const Workspace sums((args.m + args.n) * 4);
  WgmmaArgs out = arguments(args, form, sums);
  const NamedWgmmaKernel& kernel = wgmma_kernel(type_of(args), 8, form, plan_store(args, false, out));
  launch_tiles(kernel.run, kernel.name, out, args.m, args.n, form, 8, blocks);
}

void run_wgmma_split(const GemmArgs& args, int parts, int blocks) {
  if (args.m == 0 || args.n == 0) return;
  constexpr TileForm kForm = kNarrowTile128;
  const Workspace sums((args.m + args.n) * 4), raw(args.m * args.n * 4);
  WgmmaArgs out = arguments(args, kForm, sums);
  out.split = {std::min(parts, out.k_blocks), raw.as<int32_t>()};
  fill_async(out.split.sums, 0, args.m * args.n * 4, current_stream());
  const NamedWgmmaKernel& kernel = wgmma_kernel(type_of(args), 8, kForm, WgmmaStore::kSplit);
  launch_tiles(kernel.run, kernel.name, out, args.m, args.n, kForm, 8, blocks);
  LaunchShape shape;
  const int64_t pieces = args.m * gemm_detail::ceil_div(args.n, 8);
  shape.grid.x = static_cast<unsigned>(gemm_detail::ceil_div(pieces, kSplitFinishThreads));
  shape.block.x = kSplitFinishThreads;
  shape.name = "gemm_split_finish_simt";
  launch(&gemm_split_finish_simt, shape, out);
}

}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_s8_s8_wgmma, gemm::supports(args, 8), gemm::cost(args), gemm::run(args))
BITGRAD_DEFINE_GEMM(gemm_b1_b1_wgmma, gemm::supports(args, 1), gemm::cost(args), gemm::run(args))

}  // namespace bitgrad::cuda::gemm_impl
