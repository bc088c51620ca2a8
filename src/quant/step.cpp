// step, for int1 = {0, 1}: s = mean of x over x > 0, eps where there is none; code = x > 0.
#include <algorithm>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Step final : public Quantizer {
 public:
  std::string_view name() const override { return "step"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec, {.pow2 = true});
    const DTypeInfo& info = spec.dtype.info();
    require(info.kind == DTypeKind::kUint && info.qmin == 0 && info.qmax == 1, name(), "dtype: got ", spec.dtype,
            ", expected int1 = {0, 1}.");
  }
  CodeRange code_range(const QuantSpec&) const override { return {CodeRule::kPositive, 0, 1}; }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const std::vector<float> sum = blocks.statistic(ReduceRule::kSumPositive),
                             count = blocks.statistic(ReduceRule::kCountPositive);
    const auto scale_of = [&](size_t j) { return count[j] > 0.0f ? std::max(sum[j] / count[j], eps) : eps; };
    return scale_params(spec, blocks, eps, scale_of);
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Step() { return std::make_unique<Step>(); }

}  // namespace bitgrad::detail
