// Shared by pools: their windows as parameters of maps. docs/numerics.md section 10, "Images".
#pragma once

#include <algorithm>
#include <string_view>

#include "bitgrad/ops/spatial.h"
#include "ops/map/pool.h"

namespace bitgrad {

// Windows of x [n,h,w,c], in runs of 64 channels, or of `device_run` on devices. Throws Error for an x of different
// rank, and as pool_output.
maps::pools::Windows pool_windows(std::string_view op, const Shape& x, const PoolOptions& options, int64_t device_run);
// The same with runs of `run` channels.
maps::pools::Windows with_run(maps::pools::Windows windows, int64_t run);
// [n,oh,ow,c]
Shape pool_shape(int64_t samples, const maps::pools::Windows& windows);

// Applies f over the runs of the results, or of the pixels of the images.
template <typename Map>
void run_pool(const Map& f, int64_t pixels, const maps::pools::Windows& windows) {
  run_map(f, pixels * windows.runs(), std::max<int64_t>(1, kMapGrain / (windows.run * windows.g.taps())));
}

}  // namespace bitgrad
