// ternary absmean: s = max(mean abs x, eps), eps 1e-5; code = clamp(rint(x / s), -1, 1). BitNet b1.58: Ma et al. 2024,
// arXiv 2402.17764, eqs. 1 to 3 (where the divisor is mean + eps). The default straight-through rule is identity.
#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

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

}  // namespace

std::unique_ptr<Quantizer> make_Ternary() { return std::make_unique<Ternary>(); }

}  // namespace bitgrad::detail
