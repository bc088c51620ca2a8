// Products with few tiles and long k: parts of k run in parallel and add their raw sums in memory; another kernel
// converts the sums to C.
#pragma once

#include "cuda/device/builtins.h"
#include "cuda/device/fragments.h"
#include "cuda/device/unroll.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

// Adds the warpgroup's sums of rows row .. row + 63, columns from `column` on, to those of the other parts.
template <int kCount>
BITGRAD_DEVICE inline void add_to_sums(const WgmmaArgs& args, const int32_t (&d)[kCount], int row, int column) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const auto m = static_cast<int>(args.out.m), n = static_cast<int>(args.out.n);
  BITGRAD_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const TilePoint p = accumulator_point(thread, i);
    if (row + p.row < m && column + p.column < n)
      atomicAdd(args.split.sums + int64_t{row + p.row} * n + column + p.column, d[i]);
  }
}

// Each thread computes eight adjacent elements of C.
inline constexpr int kSplitFinishThreads = 256;
BITGRAD_GLOBAL void gemm_split_finish_simt(const BITGRAD_GRID_CONSTANT WgmmaArgs args);

}  // namespace bitgrad::cuda::gemm
