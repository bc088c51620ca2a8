// The reference kernels: supported operands and launches.
#include "cuda/kernels/gemm/reference/reference.h"

#include "cuda/kernels/gemm/args.h"
#include "cuda/runtime/runtime.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/float_operand.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::cuda::gemm {
namespace {

LaunchShape tiles_of(const GemmArgs& args, int64_t tile, const char* name) {
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(gemm_detail::ceil_div(args.m, tile) *
                                       gemm_detail::ceil_div(args.n, tile));  // grid.y is limited to 65535
  shape.block.x = kReferenceThreads;
  shape.name = name;
  return shape;
}

FoldForm fold_form(const GemmArgs& args) {
  switch (gemm_detail::fold_of(args)) {
    case gemm_detail::Fold::kIntoA:
      return FoldForm::kIntoA;
    case gemm_detail::Fold::kOntoSum:
      return FoldForm::kOntoSum;
    case gemm_detail::Fold::kNone:
      break;
  }
  return FoldForm::kNone;
}

FloatArgs float_args(const GemmArgs& args) {
  FloatArgs out{operand_of(args.a), operand_of(args.b), output_of(args), fold_form(args), false, 1, 1, {}, {}};
  out.bare_b = out.fold != FoldForm::kNone;
  out.levels_a = levels_of(args.a.dtype);
  out.levels_b = levels_of(args.b.dtype);
  return out;
}

}  // namespace
}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

bool gemm_int_simt_supports(const GemmArgs& args) { return gemm_is_integer(args) && integer_output(args); }
double gemm_int_simt_cost(const GemmArgs& args) { return tiled_cost(args, kNarrowTile, kNarrowTile, 1000); }
void gemm_int_simt(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  IntArgs k{operand_of(args.a),
            operand_of(args.b),
            output_of(args),
            ProductForm::kPlain,
            std::max<int64_t>(1, gemm_detail::exact_depth(args)),
            gemm_detail::has_blocks(args.a)};
  const gemm_detail::IntegerProduct product = gemm_detail::integer_product(args);
  if (product == gemm_detail::IntegerProduct::kOffsets) k.form = ProductForm::kOffsets;
  if (product == gemm_detail::IntegerProduct::kGroups) k.form = ProductForm::kGroups;
  if (args.a.dtype.is_code() && args.b.dtype.is_code())
    launch(gemm_int_narrow_simt, tiles_of(args, kNarrowTile, "gemm_int_narrow_simt"), k);
  else
    launch(gemm_int_wide_simt, tiles_of(args, kWideTile, "gemm_int_wide_simt"), k);
}

bool gemm_f32_chain512_simt_supports(const GemmArgs& args) { return gemm_detail::chain512_supports(args); }
double gemm_f32_chain512_simt_cost(const GemmArgs& args) {
  return tiled_cost(args, kReferenceTile, kReferenceTile, 1700);
}
void gemm_f32_chain512_simt(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  launch(gemm_f32_chain512_simt_kernel, tiles_of(args, kReferenceTile, "gemm_f32_chain512_simt"), float_args(args));
}

bool gemm_f32_table_simt_supports(const GemmArgs& args) { return gemm_detail::table_f32_supports(args); }
double gemm_f32_table_simt_cost(const GemmArgs& args) { return tiled_cost(args, kReferenceTile, kReferenceTile, 850); }
void gemm_f32_table_simt(const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const gemm_detail::TableShape table = gemm_detail::table_shape(args.b.dtype);
  FloatArgs k = float_args(args);
  k.codes = table.codes;
  k.groups = table.groups;
  launch(gemm_f32_table_simt_kernel, tiles_of(args, kReferenceTile, "gemm_f32_table_simt"), k);
}

}  // namespace bitgrad::cuda::gemm_impl
