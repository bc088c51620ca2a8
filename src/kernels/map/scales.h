// Maps: scales of blocks from sums and maxima over their elements, one call per block. The formulas are those of
// docs/numerics.md section 2. Used by quantizers and by the sweep of an optimizer step (update_rows.h).
#pragma once

#include "kernels/map/numbers.h"

namespace bitgrad::maps {

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
