// Maps: gradients of scalars, and of values without codes.
#pragma once

#include "ops/map/list.h"

namespace bitgrad::maps {

// out = *number.
struct FillFrom {
  const float* number;
  float* out;

  BITGRAD_HD void operator()(int64_t i) const { out[i] = *number; }
};

// values = g where the flag is set: values without codes pass through.
struct KeepWhereFlagged {
  const uint32_t* flag;
  const float* g;
  float* values;
  BITGRAD_HD void operator()(int64_t e) const {
    if (*flag != 0) values[e] = g[e];
  }
};

}  // namespace bitgrad::maps
