// Determines from forms alone which layouts the kernels of linear's products read.
#include "ops/product/gradient.h"
#include "ops/product/operand.h"
#include "ops/product/transposed.h"
#include "ops/product/windows_gradient.h"

namespace bitgrad {
namespace {

OperandForm bare(const OperandForm& form) {
  OperandForm codes;
  codes.rows = form.rows;
  codes.cols = form.cols;
  codes.dtype = form.dtype;
  return codes;
}

Layout forward_layout(const ProductForm& form) {
  static const float kUnread = 1;
  using detail::side_of;
  if (form.integer_out)
    return kernels::plan_gemm(
               detail::product_args(side_of(bare(form.x), false), side_of(bare(form.w), false), dtypes::int32))
        .b_layout;
  kernels::GemmArgs args =
      detail::product_args(side_of(form.x, false), side_of(form.w, false), form.y, form.bias ? &kUnread : nullptr);
  args.row_alone = form.row_alone;
  return kernels::plan_gemm(args).b_layout;
}

}  // namespace

void check_modes(const ProductForm& form) {
  const bool windows = form.taps > 0, per_group = form.modes.gx_per_group && !windows;
  const std::string_view where = windows ? "conv2d" : "linear";
  if (form.gx) detail::check_product(form.modes.gx, {"gx", "w", false, form.w, per_group, true, where, windows});
  if (form.gx && form.taps > 0) detail::check_conv_gx(form.modes.gx, form.w, form.taps);
  // The number of rows of x depends on the batch, so errors omit its shape.
  if (form.gw) detail::check_product(form.modes.gw, {"gw", "x", true, form.x, false, false, where, windows});
}

ProductPlan plan_product(const ProductForm& form) {
  const int64_t n = form.x.rows, i = form.x.cols, o = form.w.rows;
  const bool groups = form.w.scales && form.w.scales->kind == Granularity::kGroup;
  ProductPlan plan;
  plan.w_layout = forward_layout(form);
  if (form.taps > 0) return plan;
  plan.w_transposed = form.gx && form.modes.gx == ProductMode::kInt8 && !groups &&
                      detail::prefers_transposed(form.w.dtype, n, i, o, /*a_k_major=*/false);
  plan.x_transposed = form.gw && form.modes.gw == ProductMode::kInt8 &&
                      detail::prefers_transposed(form.x.dtype, o, i, n, /*a_k_major=*/true);
  return plan;
}

}  // namespace bitgrad
