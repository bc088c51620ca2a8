// Checks of values that only the device knows.
#pragma once

#include "ops/map/list.h"

namespace bitgrad::maps {

// Sets bit 1 in flags if a value is outside [lo, hi].
struct FlagOutside {
  const int32_t* numbers;
  int64_t lo, hi;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t i) const {
    if (numbers[i] < lo || numbers[i] > hi) or_flag(flags, 1u);
  }
};

}  // namespace bitgrad::maps
