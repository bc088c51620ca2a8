// Maps: gradients of single numbers, and of numbers without codes.
#pragma once

#include "ops/map/list.h"

namespace bitgrad::maps {

// out = *number.
struct FillFrom {
  const float* number;
  float* out;

  BITGRAD_HD void operator()(int64_t i) const { out[i] = *number; }
};

// values = g where the flag is set: numbers that have no codes go on as they are.
struct KeepWhereFlagged {
  const uint32_t* flag;
  const float* g;
  float* values;
  BITGRAD_HD void operator()(int64_t e) const {
    if (*flag != 0) values[e] = g[e];
  }
};

}  // namespace bitgrad::maps
