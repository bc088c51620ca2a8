// The ternary schemes.
#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

// ternary absmean: s = max(mean abs x, eps), eps 1e-5; code = clamp(rint(x / s), -1, 1). BitNet b1.58: Ma et al. 2024,
// arXiv 2402.17764, eqs. 1 to 3 (where the divisor is mean + eps). The default straight-through rule is identity.
class Ternary final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "ternary"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true, .div = true});
    require_ternary(name(), spec.dtype);
  }
  SteRule default_ste() const override { return SteRule::kIdentity; }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kDivide, -1, 1}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(1e-5f);
    const Tensor sum = blocks.statistic(kernels::ReduceRule::kSumAbs);
    return scale_params(spec, blocks, eps,
                        maps::BlockScales{sum.as<float>(), blocks.sizes(), true, 1.0f, 1.0f, eps, {}});
  }
  std::optional<kernels::RowFit> row_fit(const QuantSpec& spec) const override {
    return kernels::RowFit{kernels::RowFit::kMeanAbs, -1, 1, spec.eps.value_or(1e-5f), scale_rounding(spec)};
  }
};

// ternary_threshold, for ternary = {-1, 0, 1}: t = 0.7 mean abs x, the params' statistic; s = mean of abs x over abs x
// > t, or eps if there is no such x; code = sign of x where abs x > t, else 0. Ternary Weight Networks: Li et al. 2016,
// arXiv 1605.04711, eqs. 3 to 6. The default straight-through rule is identity; clip passes everything, because a
// threshold code is never clamped. The modifier pow2 changes s, not t.
class TernaryThreshold final : public BuiltinQuantizer {
 public:
  std::string_view name() const override { return "ternary_threshold"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true});
    require_ternary(name(), spec.dtype);
  }
  SteRule default_ste() const override { return SteRule::kIdentity; }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kThreshold, -1, 1, false, true}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const Tensor t = blocks.means(kernels::ReduceRule::kSumAbs, {.times = 0.7f, .name = "mean abs x"});
    const Tensor sum = blocks.statistic(kernels::ReduceRule::kSumAbsAbove, t),
                 count = blocks.statistic(kernels::ReduceRule::kCountAbsAbove, t);
    QuantParams params =
        scale_params(spec, blocks, eps, maps::MeanAboveScales{sum.as<float>(), count.as<float>(), eps, {}});
    params.statistic = shared(t);
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Ternary() { return std::make_unique<Ternary>(); }
std::unique_ptr<Quantizer> make_TernaryThreshold() { return std::make_unique<TernaryThreshold>(); }

}  // namespace bitgrad::detail
