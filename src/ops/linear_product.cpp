#include "ops/linear_product.h"

#include "bitgrad/kernels/gemm.h"
#include "bitgrad/kernels/pack.h"
#include "ops/common.h"
#include "ops/linear_fold.h"

namespace bitgrad::detail {
namespace {

// The scale of a contracted index is folded into the other operand: one scale for all, or one per stored row; no zero
// point.
bool folds(const Tensor& t) {
  const ScaleMap s = t.scale_map();
  return s.scale != nullptr && s.zero == nullptr && s.offset == nullptr && (s.per_tensor() || s.per_row());
}

GemmArgs arguments(const GradientProduct& p) {
  GemmArgs args;
  args.m = p.turned ? p.gy.cols() : p.gy.rows();
  args.n = p.other.cols();
  args.k = p.turned ? p.gy.rows() : p.gy.cols();
  args.a = gemm_operand(p.gy, p.turned);
  args.b = gemm_operand(p.other, true);
  return args;
}

void no_check(const GradientProduct&) {}

void fp32_product(const GradientProduct& p, GradSlot& slot) {
  GemmArgs args = arguments(p);
  args.fold_b_scale = folds(p.other);
  product_into(args, slot);
}

void check_bf16(const GradientProduct& p) {
  require(p.other.dtype() != dtypes::fp64, "linear", p.name, " bf16: ", p.other_name, " is ", p.other,
          ", expected codes, fp32 or bf16. Products of fp64 have the mode fp32 only (they are taken in double).");
}

void bf16_product(const GradientProduct& p, GradSlot& slot) {
  const bool fold = folds(p.other);
  GemmArgs args = arguments(p);
  Tensor rounded = p.gy;
  if (fold || p.gy.dtype() != dtypes::bf16) {
    const Along folded = fold ? along(args.b.scale, args.k, 0) : Along{};
    rounded = to_bf16_codes(FoldedGradient(p.gy, p.turned, folded.scales()));
  }
  args.a = gemm_operand(rounded, p.turned);
  if (fold) args.b.scale = {};
  product_into(args, slot);
}

struct Mode {
  ProductMode mode;
  std::string_view name;
  void (*check)(const GradientProduct&);
  void (*run)(const GradientProduct&, GradSlot&);
};
constexpr Mode kModes[] = {
    {ProductMode::kFp32, "fp32", no_check, fp32_product},
    {ProductMode::kBf16, "bf16", check_bf16, bf16_product},
    {ProductMode::kInt8, "int8", check_int8, int8_product},
};
const Mode& mode_of(ProductMode mode) {
  for (const Mode& m : kModes)
    if (m.mode == mode) return m;
  fail_with(ErrorCode::kBug, "linear", "internal error: unknown mode ", static_cast<int>(mode));
}

}  // namespace

void check_product(ProductMode mode, const GradientProduct& p) { mode_of(mode).check(p); }
void gradient_product(ProductMode mode, const GradientProduct& p, GradSlot& slot) { mode_of(mode).run(p, slot); }

void forward_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  GemmArgs args;
  args.m = x.rows();
  args.n = w.rows();
  args.k = x.cols();
  args.a = gemm_operand(x, false);
  args.b = gemm_operand(w, false);
  args.c = y.data();
  args.c_dtype = y.dtype();
  args.ldc = y.cols();
  args.bias = bias.defined() ? bias.as<float>() : nullptr;
  std::vector<Layout> w_layouts{w.layout()};
  for (const Tensor& t : w.attached_layouts()) w_layouts.push_back(t.layout());
  const GemmRow& best = plan_gemm(args, w_layouts);
  Tensor x_there = x.in_layout(best.a_layout);
  if (!x_there.defined()) {
    x_there = Tensor::empty_layout(x.shape(), x.dtype(), best.a_layout, MemoryKind::kActivation);
    pack({x.dtype(), x.rows(), x.cols(), x.data(), x.stride(), best.a_layout, x_there.data()});
  }
  args.a.data = x_there.data();
  args.a.layout = best.a_layout;
  args.b.data = w.in_layout(best.b_layout).data();
  args.b.layout = best.b_layout;
  best.run(args);
}

}  // namespace bitgrad::detail

namespace bitgrad {

std::string_view mode_name(ProductMode mode) { return detail::mode_of(mode).name; }

}  // namespace bitgrad
