// Maps: one value everywhere.
#pragma once

#include "kernels/map/list.h"

namespace bitgrad::maps {

// y[i] = value
struct Fill {
  float* y;
  float value;
  BITGRAD_HD void operator()(int64_t i) const { y[i] = value; }
};

// out = number
struct FillFloats {
  float number;
  float* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = number; }
};
struct FillInts {
  int32_t number;
  int32_t* out;
  BITGRAD_HD void operator()(int64_t j) const { out[j] = number; }
};

}  // namespace bitgrad::maps
