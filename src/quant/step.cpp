// step, for int1 = {0, 1}: s = mean of x over x > 0, or eps if there is no such x; code = x > 0.
#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Step final : public BuiltinQuantizer {
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
    const Tensor sum = blocks.statistic(kernels::ReduceRule::kSumPositive),
                 count = blocks.statistic(kernels::ReduceRule::kCountPositive);
    return scale_params(spec, blocks, eps, maps::MeanAboveScales{sum.as<float>(), count.as<float>(), eps, {}});
  }
  std::optional<kernels::RowFit> row_fit(const QuantSpec& spec) const override {
    return kernels::RowFit{kernels::RowFit::kMeanPositive, 0, 1, spec.eps.value_or(kSmallestNormal),
                           scale_rounding(spec)};
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Step() { return std::make_unique<Step>(); }

}  // namespace bitgrad::detail
