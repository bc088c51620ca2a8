// Maps of the optimizer that process gradients before the update.
#pragma once

#include <cstdint>

#include "bitgrad/base/step_scalars.h"
#include "optim/map/list.h"

namespace bitgrad::maps {

// x = x / by, elementwise.
struct DivideEach {
  float* x;
  const float* by;
  BITGRAD_HD void operator()(int64_t i) const { x[i] = x[i] / by[i]; }
};

// Flags NaN and Inf in a bf16 gradient.
struct FlagNonFiniteBf16 {
  const uint16_t* x;
  uint32_t* flags;
  BITGRAD_HD void operator()(int64_t i) const {
    if ((x[i] & 0x7F80u) == 0x7F80u) or_flag(flags, 1u);
  }
};

// g = g * live->factor.
struct ScaleByFactor {
  const StepScalars* live;
  float* g;
  BITGRAD_HD void operator()(int64_t i) const { g[i] = g[i] * live->factor; }
};

}  // namespace bitgrad::maps
