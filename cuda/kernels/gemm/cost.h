// Estimated nanoseconds of products on the device. The constants are those of an H100 where docs/results/gpu_h100.md
// has a measurement (not: simt kernels of codes, split-k). They only rank the kernels; no result depends on them.
#pragma once

#include <algorithm>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {

inline constexpr double kLaunchNs = 3000, kMultiprocessors = 132, kBytesPerNs = 3500;

// Cost of a product in tiles of tile_m x tile_n, one per multiprocessor at a time, at `macs_per_ns` for the whole
// device.
inline double tiled_cost(const GemmArgs& args, int64_t tile_m, int64_t tile_n, double macs_per_ns) {
  const double tiles = static_cast<double>(gemm_detail::ceil_div(args.m, tile_m)) *
                       static_cast<double>(gemm_detail::ceil_div(args.n, tile_n));
  const double waves = std::max(1.0, tiles <= kMultiprocessors ? 1.0 : tiles / kMultiprocessors);
  const double tile = static_cast<double>(tile_m * tile_n) * static_cast<double>(args.k);
  return kLaunchNs + waves * tile * kMultiprocessors / macs_per_ns;
}
// Bytes of the operand, each read from memory once.
inline double operand_bytes(const GemmOperand& x, int64_t free, int64_t k) {
  return static_cast<double>(free) * static_cast<double>(k) * x.dtype.bits() / 8;
}

}  // namespace bitgrad::cuda::gemm
