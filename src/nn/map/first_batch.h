// Maps: ranges of int32 sums with a scale, and initial values of the learned parts of activation quantizers.
#pragma once

#include "kernels/map/numbers.h"
#include "nn/map/list.h"

namespace bitgrad::maps {

// Minimum and maximum of each row; 0 for a row without elements.
struct IntegerRowRanges {
  q::Elements elements;
  const int32_t* x;
  float *low, *high;
  BITGRAD_HD void operator()(int64_t r) const {
    const ScaleMap& map = elements.map;
    float min = 0, max = 0;
    for (int64_t c = 0; c < elements.cols; ++c) {
      float v = static_cast<float>(x[r * elements.cols + c]);
      if (map.scale != nullptr) v = v * map.scale[q::index_of(map, r, c)];
      min = c == 0 ? v : q::smaller(min, v);
      max = c == 0 ? v : q::larger(max, v);
    }
    low[r] = min;
    high[r] = max;
  }
};

// ends[2] = {low, high}.
struct TwoEnds {
  const float *low, *high;
  float* ends;
  BITGRAD_HD void operator()(int64_t) const {
    ends[0] = *low;
    ends[1] = *high;
  }
};

// Stores the initial values of a learned part, unless the batch was bad. Used by src/nn/activation_quantizer.cpp.
struct StoreFirst {
  const float* value;
  const uint32_t* bad;
  uint32_t* flags;  // set to kFlagNonFinite by a bad batch
  float* part;
  BITGRAD_HD void operator()(int64_t j) const {
    if (*bad != 0) return or_flag(flags, kFlagNonFinite);
    part[j] = value[j];
  }
};

}  // namespace bitgrad::maps
