// Runs the forward product of linear, and determines from forms alone which layouts the kernels of linear's products
// read.
#include <algorithm>
#include <optional>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "kernels/pack.h"
#include "ops/product/gradient.h"
#include "ops/product/operand.h"
#include "ops/product/transposed.h"
#include "ops/product/windows_gradient.h"
#include "tensor/narrow.h"

namespace bitgrad::detail {
namespace {

std::vector<Layout> layouts_of(const Tensor& w) {
  std::vector<Layout> layouts{w.layout()};
  for (const Tensor& t : w.attached_layouts()) layouts.push_back(t.layout());
  return layouts;
}

// x in the given layout: as stored, or packed for this product.
Tensor packed(const Tensor& x, Layout layout) {
  Tensor there = x.in_layout(layout);
  if (there.defined()) return there;
  there = Tensor::empty_layout(x.shape(), x.dtype(), layout, MemoryKind::kActivation);
  kernels::pack({x.dtype(), x.rows(), x.cols(), x.data(), x.stride(), layout, there.data()});
  return there;
}

// w as operand B: its form, and the layouts in which a kernel may have it.
class Weight {
 public:
  explicit Weight(const Tensor& w) : w_(w), layouts_(layouts_of(w)) {
    if (w.present()) {
      side_ = side_of(w, false);
      return;
    }
    side_ = side_of(form_of(w), false);
    side_.gemm.stride = w.stride();
    side_.gemm.scale = w.scale_map();
  }
  const Side& side() const { return side_; }

  // Codes that exist in derived layouts only are restored for this product where the best kernel reads canonical ones,
  // unless another with the same order of sums is as fast.
  const kernels::GemmKernel& choose(const kernels::GemmArgs& args) {
    const kernels::GemmKernel& best = kernels::plan_gemm(args, layouts_);
    if (best.b_layout != w_.layout() || w_.present()) return best;
    const kernels::GemmKernel* const other = kernels::find_gemm(args, std::span(layouts_).subspan(1));
    const double restored =
        kernels::gemm_cost(best, args) + kRestoreNs * static_cast<double>(args.n) * static_cast<double>(args.k);
    if (other != nullptr && other->order == best.order && best.order != SumOrder::kFree &&
        kernels::gemm_cost(*other, args) <= restored)
      return *other;
    return best;
  }
  // Sets what the kernel reads.
  void put(Layout layout, kernels::GemmOperand& b) {
    Tensor there = w_.in_layout(layout);
    if (layout == w_.layout() && !w_.present())
      there = restored_ = w_.canonical_rows(0, w_.rows(), MemoryKind::kWorkspace);
    b.data = there.data();
    b.layout = layout;
    const Tensor scales = there.panel_scales();
    if (!scales.defined() || b.scale.scale == nullptr) return;
    b.panel_scales = scales.data();
    b.panel_dtype = scales.dtype();
  }

 private:
  static constexpr double kRestoreNs = 0.2;  // per code
  const Tensor& w_;
  const std::vector<Layout> layouts_;
  Side side_;
  Tensor restored_;
};

// The 16-bit floats that hold w, if their product is summed in the order of the fp32 one, and so has its bits; else
// nullopt: the fp32 values exist from now on.
std::optional<Tensor> held_values(const Operand& x, const Tensor& w, DType y, const Tensor& bias, bool row_alone) {
  if (w.present()) return std::nullopt;
  const Tensor narrow = narrow_of(w);
  if (!narrow.defined()) return std::nullopt;
  const auto order_of = [&](const Tensor& form) {
    kernels::GemmArgs args =
        product_args(x.side(false), side_of(form_of(form), false), y, bias.defined() ? bias.as<float>() : nullptr);
    args.row_alone = row_alone;
    return kernels::plan_gemm(args, std::span(&layouts::canonical, 1)).order;
  };
  const SumOrder order = order_of(w);
  if (order != SumOrder::kFree && order_of(narrow) == order) return narrow;
  w.data();
  return std::nullopt;
}

}  // namespace

void forward_product(const Operand& x, const Tensor& stored, const Tensor& bias, const Tensor& y, bool row_alone) {
  const std::optional<Tensor> held = held_values(x, stored, y.dtype(), bias, row_alone);
  const Tensor& w = held ? *held : stored;
  Weight weight(w);
  kernels::GemmArgs full =
      product_args(x.side(false), weight.side(), y.dtype(), bias.defined() ? bias.as<float>() : nullptr);
  full.row_alone = row_alone;
  const kernels::GemmKernel& kernel = weight.choose(full);
  full.ldc = y.stride() * 8 / y.dtype().bits();
  weight.put(kernel.b_layout, full.b);
  const int64_t rows = x.row_count(), block = x.block_rows();
  const auto run = [&](int64_t begin, int64_t end) {
    Tensor workspace;
    const Tensor part = x.rows(begin, end, workspace), there = packed(part, kernel.a_layout);
    kernels::GemmArgs args = full;
    args.m = end - begin;
    args.a = side_of(part, false).gemm;
    args.a.data = there.data();
    args.a.layout = kernel.a_layout;
    args.c = static_cast<char*>(y.data()) + begin * y.stride();
    ensure(block >= rows || kernel.supports(args), "linear", kernel.name, " was planned for a product of ", rows,
           " rows, and does not support ", args.m, " of them");
    kernel.run(args);
  };
  if (block >= rows) return run(0, rows);
  parallel_for((rows + block - 1) / block, [&](int64_t i) { run(i * block, std::min((i + 1) * block, rows)); });
}

}  // namespace bitgrad::detail

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
