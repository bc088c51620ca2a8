#include "quant/range.h"

#include <bit>
#include <cmath>

#include "quant/blocks.h"
#include "quant/checks.h"

namespace bitgrad::detail {
namespace {

// Whether all blocks have elements, finite ends and a finite result `made`. A branch-free OR, which vectorizes.
bool plain(const maps::q::RangeBlocks& blocks, int64_t count, const float* made) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t odd = 0;
  for (int64_t j = 0; j < count; ++j) {
    const uint32_t l = std::bit_cast<uint32_t>(blocks.low[j]), h = std::bit_cast<uint32_t>(blocks.high[j]),
                   m = std::bit_cast<uint32_t>(made[j]);
    odd |= static_cast<uint32_t>((l & kExponent) == kExponent) | static_cast<uint32_t>((h & kExponent) == kExponent) |
           static_cast<uint32_t>((m & kExponent) == kExponent) | static_cast<uint32_t>(blocks.low[j] > blocks.high[j]);
  }
  return odd == 0;
}

}  // namespace

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
  const Blocks::Ranges range = blocks.ranges();
  return params(spec, range.low, range.high, blocks.what());
}

std::optional<kernels::RowFit> RangeQuantizer::row_fit(const QuantSpec& spec) const {
  const std::optional<kernels::RowFit::Rule> rule = row_rule();
  if (!rule) return std::nullopt;
  const CodeLimits limits = code_limits(spec);
  return kernels::RowFit{*rule, static_cast<float>(limits.lo), static_cast<float>(limits.hi),
                         spec.eps.value_or(default_eps()), scale_rounding(spec)};
}

void RangeQuantizer::check_scales(const maps::q::RangeBlocks& blocks, int64_t count, const std::string& what) const {
  for (int64_t j = 0; j < count; ++j) {
    const float l = blocks.low[j], h = blocks.high[j];
    if (!(l > h) && !(std::isfinite(l) && std::isfinite(h)))
      fail_with(ErrorCode::kNonFinite, name(), "the range of block ", j, " is ", l, " to ", h, ": it has no scale.");
    require_finite(name(), what, "scale", j, blocks.scale.out[j]);
  }
}

QuantParams RangeQuantizer::fit_range(const QuantSpec& spec, const Tensor& low, const Tensor& high) const {
  for (const Tensor* t : {&low, &high})
    require(t->defined() && t->dtype() == dtypes::fp32 && !t->quant() && t->contiguous(), name(), "ranges per ",
            spec.granularity, ": got ", *t, ", expected fp32 values.");
  require(low.numel() == high.numel() && (spec.granularity.kind != Granularity::kTensor || low.numel() == 1), name(),
          "ranges per ", spec.granularity, ": got ", low.numel(), " minima and ", high.numel(), " maxima.");
  return params(spec, low, high, "the range's ends");
}

QuantParams RangeQuantizer::params(const QuantSpec& spec, const Tensor& low, const Tensor& high,
                                   const std::string& what) const {
  const int64_t count = low.numel();
  const CodeLimits limits = code_limits(spec);
  const BlockCheck check;
  const auto numbers = [&](DType dtype) { return Tensor::empty({count}, dtype, MemoryKind::kQuantState); };
  QuantParams out = params_with(name(), spec, numbers(dtypes::fp32));
  maps::q::RangeBlocks blocks{low.as<float>(),
                              high.as<float>(),
                              static_cast<float>(limits.lo),
                              static_cast<float>(limits.hi),
                              spec.eps.value_or(default_eps()),
                              {out.scale->as<float>(), check.flags(), scale_rounding(spec)},
                              nullptr,
                              nullptr};
  if (shift() == Shift::kZero) {
    out.zero = shared(numbers(dtypes::int32));
    blocks.zero = out.zero->as<int32_t>();
  } else if (shift() == Shift::kOffset) {
    out.offset = shared(numbers(dtypes::fp32));
    blocks.offset = out.offset->as<float>();
  }
  scales(blocks, count);
  if (!current_device().is_cpu()) {
    check.fails([name = name(), what] {
      fail_with(ErrorCode::kNonFinite, name, what, " are too large: the range, scale or offset of a block is not ",
                "finite in fp32.");
    });
    return out;
  }
  if (!plain(blocks, count, blocks.scale.out)) check_scales(blocks, count, what);
  if (out.offset && !plain(blocks, count, blocks.offset))
    for (int64_t j = 0; j < count; ++j) require_finite(name(), what, "offset", j, blocks.offset[j]);
  return out;
}

}  // namespace bitgrad::detail
