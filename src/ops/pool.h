// The windows of a pool as parameters of maps. docs/numerics.md section 10, "Images".
#pragma once

#include "bitgrad/ops/spatial.h"
#include "ops/map/pool.h"

namespace bitgrad {

// Windows of x [n,h,w,c], in runs of 64 channels, or of `device_run` on devices. Throws Error for an x of different
// rank, and as pool_output.
maps::pools::Windows pool_windows(std::string_view op, const Shape& x, const PoolOptions& options, int64_t device_run);

}  // namespace bitgrad
