#include "quant/range.h"

#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {

float RangeQuantizer::default_eps() const { return kSmallestNormal; }

void RangeQuantizer::check(const QuantSpec& spec, bool weight) const {
  check_common(*this, spec, {.pow2 = true, .div = true, .reduce_range = true});
  require_integer(name(), spec.dtype);
  refuse_int1_weight(name(), spec.dtype, weight);
}

CodeRange RangeQuantizer::code_range(const QuantSpec& spec) const {
  const CodeLimits limits = code_limits(spec);
  return {quotient_rule(spec), limits.lo, limits.hi};
}

QuantParams RangeQuantizer::fit(const QuantSpec& spec, const Tensor& x) const {
  const Blocks blocks(name(), spec.granularity, x);
  const std::vector<float> low = blocks.statistic(ReduceRule::kMin), high = blocks.statistic(ReduceRule::kMax);
  return params(spec, low, high, concat("the numbers of x ", x));
}

QuantParams RangeQuantizer::fit_range(const QuantSpec& spec, std::span<const float> low,
                                      std::span<const float> high) const {
  require(low.size() == high.size() && (spec.granularity.kind != Granularity::kTensor || low.size() == 1), name(),
          "ranges per ", spec.granularity, ": got ", low.size(), " least and ", high.size(), " largest numbers.");
  return params(spec, low, high, "the range's ends");
}

QuantParams RangeQuantizer::params(const QuantSpec& spec, std::span<const float> low, std::span<const float> high,
                                   const std::string& what) const {
  const int64_t count = static_cast<int64_t>(low.size());
  const float eps = spec.eps.value_or(default_eps());
  const CodeLimits limits = code_limits(spec);
  const Tensor scales = Tensor::empty({count}, dtypes::fp32, MemoryKind::kQuantState);
  const Tensor shifts =
      shift() == Shift::kNone
          ? Tensor()
          : Tensor::zeros({count}, shift() == Shift::kZero ? dtypes::int32 : dtypes::fp32, MemoryKind::kQuantState);
  for (int64_t j = 0; j < count; ++j) {
    const float l = low[static_cast<size_t>(j)], h = high[static_cast<size_t>(j)];
    const bool empty = l > h;
    if (!empty && !(std::isfinite(l) && std::isfinite(h)))
      fail_with(ErrorCode::kNonFinite, name(), "the range of block ", j, " is ", l, " to ", h, ": no scale fits it.");
    const float s = finish_scale(spec, name(), what, j, empty ? eps : scale(limits, l, h, eps));
    scales.as<float>()[j] = s;
    if (empty || shift() == Shift::kNone) continue;
    const float shifted = shift_of(limits, l, s);
    if (shift() == Shift::kZero) {
      shifts.as<int32_t>()[j] = static_cast<int32_t>(shifted);
    } else {
      shifts.as<float>()[j] = finish_offset(name(), what, j, shifted);
    }
  }
  QuantParams out;
  out.scheme = name();
  out.granularity = spec.granularity;
  out.scale = std::make_shared<const Tensor>(scales);
  if (shift() != Shift::kNone)
    (shift() == Shift::kZero ? out.zero : out.offset) = std::make_shared<const Tensor>(shifts);
  return out;
}

}  // namespace bitgrad::detail
