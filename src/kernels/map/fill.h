// y[i] = value
#pragma once

#include "kernels/map/map.h"

namespace bitgrad::maps {

struct Fill {
  float* y;
  float value;
  BITGRAD_HD void operator()(int64_t i) const { y[i] = value; }
};

}  // namespace bitgrad::maps
