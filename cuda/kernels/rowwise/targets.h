// Integer targets of rows.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/kernels/contracts.h"
#include "kernels/map/map.h"
#include "kernels/rowwise.h"

namespace bitgrad::cuda::rowwise {

struct Targets {
  const int32_t* classes;
  int32_t ignore;
  uint32_t* flags;

  BITGRAD_DEVICE bool ignored(int64_t row) const { return classes[row] == ignore; }
  // The class of a row that is not ignored. For an invalid target, sets the flag and returns 0.
  BITGRAD_DEVICE int64_t of(int64_t row, int64_t cols) const {
    const int32_t target = classes[row];
    if (target >= 0 && target < cols) return target;
    or_flag(flags, kFlagNoClass);
    return 0;
  }
};

}  // namespace bitgrad::cuda::rowwise
