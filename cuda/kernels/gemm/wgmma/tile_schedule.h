// The order in which a persistent grid visits the tiles of C: bands of `band` tile rows, each column by column. Blocks
// that run at the same time then share few rows of A and columns of B, and find them in the L2 cache.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "cuda/device/fragments.h"

namespace bitgrad::cuda::gemm {

struct TileSchedule {
  int32_t rows = 0, columns = 0;  // tiles
  int32_t band = 1;

  BITGRAD_HD constexpr int32_t count() const { return rows * columns; }
  // Tile `index`, 0 <= index < count(). Visits each tile once.
  BITGRAD_HD constexpr TilePoint at(int32_t index) const {
    const int32_t per_band = band * columns, first = index / per_band * band;
    const int32_t height = rows - first < band ? rows - first : band, inside = index % per_band;
    return {first + inside % height, inside / height};
  }
};

}  // namespace bitgrad::cuda::gemm
