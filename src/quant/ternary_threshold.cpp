// ternary_threshold, for ternary = {-1, 0, 1}: t = 0.7 mean abs x, the params' statistic; s = mean of abs x over abs x
// > t, eps where there is none; code = sign of x where abs x > t, else 0. Ternary Weight Networks: Li et al. 2016,
// arXiv 1605.04711, eqs. 3 to 6. The straight-through rule is the identity by default; clip passes everything, as a
// code by a threshold is never clamped. The modifier pow2 changes s, not t.
#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class TernaryThreshold final : public Quantizer {
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
    std::vector<float> t = blocks.mean_abs();
    for (size_t j = 0; j < t.size(); ++j)
      t[j] = 0.7f * finish_offset(name(), blocks.what(), static_cast<int64_t>(j), t[j], "mean abs x");
    const std::vector<float> sum = blocks.statistic(ReduceRule::kSumAbsAbove, t),
                             count = blocks.statistic(ReduceRule::kCountAbsAbove, t);
    QuantParams params = scale_params(
        spec, blocks, eps, [&](size_t j) { return count[j] > 0.0f ? std::max(sum[j] / count[j], eps) : eps; });
    params.statistic = state_tensor(t);
    return params;
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_TernaryThreshold() { return std::make_unique<TernaryThreshold>(); }

}  // namespace bitgrad::detail
