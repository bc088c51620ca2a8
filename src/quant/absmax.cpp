// absmax (narrow): s = max(a / qmax, eps), a = max abs x; code = clamp(rint(x * (1/s)), -qmax, qmax).
#include <algorithm>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Absmax final : public Quantizer {
 public:
  std::string_view name() const override { return "absmax"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_common(*this, spec);
    require_integer(name(), spec.dtype);
    refuse_int1_weight(name(), spec.dtype, weight);
    require(spec.dtype.info().qmax > 0, name(), "dtype ", spec.dtype, ": its largest code is ", spec.dtype.info().qmax,
            ", expected a positive one.");
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    const DTypeInfo& info = spec.dtype.info();
    return {quotient_rule(spec), std::max(info.qmin, -info.qmax), info.qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal), qmax = static_cast<float>(spec.dtype.info().qmax);
    const std::vector<float> a = blocks.statistic(ReduceRule::kAbsMax);
    return {std::string(name()), spec.granularity,
            make_scales(spec, blocks, eps, [&](size_t j) { return std::max(a[j] / qmax, eps); }), nullptr, nullptr};
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Absmax() { return std::make_unique<Absmax>(); }

}  // namespace bitgrad::detail
