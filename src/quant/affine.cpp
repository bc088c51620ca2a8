// affine: s = max((hi - lo) / (qmax - qmin), eps), lo = min(0, min x), hi = max(0, max x); z = clamp(qmin - rint(lo /
// s), qmin, qmax); code = clamp(rint(x * (1/s)) + z). Equals torchao 0.18, choose_qparams_affine with MappingType
// ASYMMETRIC, in fp32. A tensor without elements has s = eps, z = 0.
#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class Affine final : public Quantizer {
 public:
  std::string_view name() const override { return "affine"; }
  void check(const QuantSpec& spec, bool weight) const override {
    check_common(*this, spec);
    require_integer(name(), spec.dtype);
    refuse_int1_weight(name(), spec.dtype, weight);
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {quotient_rule(spec), spec.dtype.info().qmin, spec.dtype.info().qmax};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(kSmallestNormal);
    const float qmin = static_cast<float>(spec.dtype.info().qmin), qmax = static_cast<float>(spec.dtype.info().qmax);
    std::vector<float> low = blocks.statistic(ReduceRule::kMin), high = blocks.statistic(ReduceRule::kMax);
    for (float& l : low) l = std::min(0.0f, l);
    for (float& h : high) h = std::max(0.0f, h);
    const auto scale =
        make_scales(spec, blocks, eps, [&](size_t j) { return std::max((high[j] - low[j]) / (qmax - qmin), eps); });
    const Tensor zero = Tensor::zeros({blocks.count()}, dtypes::int32, MemoryKind::kQuantState);
    if (!blocks.empty()) {
      for (int64_t j = 0; j < blocks.count(); ++j) {
        const float z = qmin - std::rint(low[static_cast<size_t>(j)] / scale->as<float>()[j]);
        zero.as<int32_t>()[j] = static_cast<int32_t>(std::clamp(z, qmin, qmax));
      }
    }
    return {std::string(name()), spec.granularity, scale, std::make_shared<const Tensor>(zero), nullptr};
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_Affine() { return std::make_unique<Affine>(); }

}  // namespace bitgrad::detail
