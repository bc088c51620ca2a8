// Maps: scales of blocks from sums and maxima over their elements, one call per block. The formulas are those of
// docs/numerics.md section 2. Used by quantizers and by the sweep of an optimizer step (update_rows.h).
#pragma once

#include "kernels/map/numbers.h"

namespace bitgrad::maps {

// Maps: scales, zero points and offsets for schemes that derive them from the range of a block (src/quant/range.h and
// the schemes). One call per block. docs/numerics.md section 2.

namespace q {

struct RangeBlocks {
  const float *low, *high;  // low > high marks an empty block: scale eps, zero point and offset 0
  float lo, hi;             // smallest and largest code in use
  float eps;
  BlockOut scale;
  int32_t* zero = nullptr;
  float* offset = nullptr;

  BITGRAD_HD bool none(int64_t j) const { return low[j] > high[j]; }
  BITGRAD_HD float store(int64_t j, float s) const {
    const float l = low[j], h = high[j];
    s = l > h ? eps : s;
    s = rounded_scale(scale.rounding, s);
    if (scale.flags != nullptr) s = legal(s, l > h || (finite(l) && finite(h)));
    scale.out[j] = s;
    return s;
  }
  BITGRAD_HD void store_offset(int64_t j, float m) const {
    m = rounded_offset(scale.rounding, none(j) ? 0.0f : m);
    if (scale.flags != nullptr) m = legal(m, true);
    offset[j] = m;
  }

 private:
  BITGRAD_HD float legal(float number, bool range_is_finite) const {
    if (range_is_finite && finite(number)) return number;
    or_flag(scale.flags, kFlagNonFinite);
    return finite(number) ? number : 1.0f;
  }
};

}  // namespace q

// s = max(max(-l, h) / ((qmax - qmin) / 2), eps), l = min(0, low), h = max(0, high).
struct SymmetricScales {
  q::RangeBlocks b;
  BITGRAD_HD void operator()(int64_t j) const {
    const float l = q::smaller(0.0f, b.low[j]), h = q::larger(0.0f, b.high[j]);
    b.store(j, q::larger(q::larger(-l, h) / ((b.hi - b.lo) / 2.0f), b.eps));
  }
};

// s = max(max(l / qmin, h / qmax), eps).
struct SymmetricNoClipScales {
  q::RangeBlocks b;
  BITGRAD_HD void operator()(int64_t j) const {
    const float l = q::smaller(0.0f, b.low[j]), h = q::larger(0.0f, b.high[j]);
    b.store(j, q::larger(q::larger(l / b.lo, h / b.hi), b.eps));
  }
};

// s = max(max abs x / qmax, eps).
struct AbsmaxScales {
  q::RangeBlocks b;
  BITGRAD_HD void operator()(int64_t j) const { b.store(j, q::larger(q::larger(-b.low[j], b.high[j]) / b.hi, b.eps)); }
};

// s = max((h - l) / (qmax - qmin), eps); z = clamp(qmin - rint(l / s), qmin, qmax).
struct AffineScales {
  q::RangeBlocks b;
  BITGRAD_HD void operator()(int64_t j) const {
    const float l = q::smaller(0.0f, b.low[j]), h = q::larger(0.0f, b.high[j]);
    const float s = b.store(j, q::larger((h - l) / (b.hi - b.lo), b.eps));
    b.zero[j] = b.none(j) ? 0 : static_cast<int32_t>(q::clamped(b.lo - rintf(l / s), b.lo, b.hi));
  }
};

// out = max(times * a / divisor, floor), where a is the block's number, or that number divided by the block's size.
struct BlockScales {
  const float* number;
  q::BlockSizes size;
  bool mean;
  float times, divisor, floor;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const {
    const float a = mean ? number[j] / size.of(j) : number[j];
    out.store(j, q::larger(times * a / divisor, floor));
  }
};

// out = max(sum / count, eps), or eps if count is 0.
struct MeanAboveScales {
  const float *sum, *count;
  float eps;
  q::BlockOut out;
  BITGRAD_HD void operator()(int64_t j) const {
    out.store(j, count[j] > 0.0f ? q::larger(sum[j] / count[j], eps) : eps);
  }
};

// out = max(number, floor); may run in place.
struct NumbersAtLeast {
  const float* number;
  float floor;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = q::larger(number[j], floor); }
};

}  // namespace bitgrad::maps
