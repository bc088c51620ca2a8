// Estimated nanoseconds of products on the device: constants of an H200 (132 multiprocessors, ~1.7 GHz, 4 TB/s of
// memory), from measured ceilings of its instructions times the share that such kernels reach elsewhere. They order the
// rows; no result depends on them.
#pragma once

#include <algorithm>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {

inline constexpr double kLaunchNs = 3000, kMultiprocessors = 132, kBytesPerNs = 3500;

// A product cut into tiles of tile_m x tile_n, one a multiprocessor at a time, at `macs_per_ns` on the whole device.
inline double tiled_cost(const GemmArgs& args, int64_t tile_m, int64_t tile_n, double macs_per_ns) {
  const double tiles = static_cast<double>(gemm_detail::ceil_div(args.m, tile_m)) *
                       static_cast<double>(gemm_detail::ceil_div(args.n, tile_n));
  const double waves = std::max(1.0, tiles <= kMultiprocessors ? 1.0 : tiles / kMultiprocessors);
  const double tile = static_cast<double>(tile_m * tile_n) * static_cast<double>(args.k);
  return kLaunchNs + waves * tile * kMultiprocessors / macs_per_ns;
}
// Bytes that cross memory once.
inline double operand_bytes(const GemmOperand& x, int64_t free, int64_t k) {
  return static_cast<double>(free) * static_cast<double>(k) * x.dtype.bits() / 8;
}

}  // namespace bitgrad::cuda::gemm
