// minmax_offset: l = min x, h = max x (not stretched to 0); s = max(h - l, eps) / (qmax - qmin), eps 1e-6; m = l - s *
// qmin; code = clamp(rint((x - l) / s), 0, qmax - qmin) + qmin. The 4-bit form of torchao's tinygemm (Int4 weight
// only), codes shifted by qmin. Codes always come from s and m alone, with l = m + s * qmin, so that those of a fresh
// fit and of scales read from a file agree. A tensor without elements has s = eps, m = 0.
#include <algorithm>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

class MinmaxOffset final : public Quantizer {
 public:
  std::string_view name() const override { return "minmax_offset"; }
  void check(const QuantSpec& spec, bool) const override {
    check_common(*this, spec);
    require_integer(name(), spec.dtype);
  }
  CodeRange code_range(const QuantSpec& spec) const override {
    return {CodeRule::kOffset, spec.dtype.info().qmin, spec.dtype.info().qmax, true};
  }
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const override {
    const Blocks blocks(name(), spec.granularity, x);
    const float eps = spec.eps.value_or(1e-6f);
    const float qmin = static_cast<float>(spec.dtype.info().qmin), qmax = static_cast<float>(spec.dtype.info().qmax);
    const std::vector<float> low = blocks.statistic(ReduceRule::kMin), high = blocks.statistic(ReduceRule::kMax);
    const auto scale =
        make_scales(spec, blocks, eps, [&](size_t j) { return std::max(high[j] - low[j], eps) / (qmax - qmin); });
    const Tensor offset = Tensor::zeros({blocks.count()}, dtypes::fp32, MemoryKind::kQuantState);
    if (!blocks.empty()) {
      for (int64_t j = 0; j < blocks.count(); ++j) {
        offset.as<float>()[j] = finish_offset(blocks, j, low[static_cast<size_t>(j)] - scale->as<float>()[j] * qmin);
      }
    }
    return {std::string(name()), spec.granularity, scale, nullptr, std::make_shared<const Tensor>(offset)};
  }
};

}  // namespace

std::unique_ptr<Quantizer> make_MinmaxOffset() { return std::make_unique<MinmaxOffset>(); }

}  // namespace bitgrad::detail
