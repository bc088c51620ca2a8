// Tiles of 128 x 128 codes in shared memory, one byte per code: filled by octets along rows, stored by octets along
// columns.
#pragma once

#include "cuda/kernels/pack/octet.h"

namespace bitgrad::cuda {

inline constexpr int kTileSide = 128, kTileThreads = 256;
inline constexpr int kTilePitch = kTileSide + 4;  // an odd number of words: octets of a column are in different banks
inline constexpr int kTileOctets = kTileSide * kTileSide / 8;
inline constexpr int kTileWords = kTileSide * kTilePitch / 4;  // of shared memory

// The first row and column of a block's tile in a matrix of `rows` rows; tiles are numbered down the columns.
struct TilePlace {
  int64_t row, col;
};
BITGRAD_DEVICE inline TilePlace tile_place(int64_t rows) {
  const Cell at = cell_of(blockIdx.x, (rows + kTileSide - 1) / kTileSide);
  return {at.col * kTileSide, at.row * kTileSide};
}
inline int64_t tile_count(int64_t rows, int64_t cols) {
  return (rows + kTileSide - 1) / kTileSide * ((cols + kTileSide - 1) / kTileSide);
}

// Writes the bytes of octet o of row r of the tile.
BITGRAD_DEVICE inline void put_octet(uint32_t* tile, int r, int o, uint64_t bytes) {
  uint32_t* const to = tile + r * (kTilePitch / 4) + 2 * o;
  to[0] = static_cast<uint32_t>(bytes);
  to[1] = static_cast<uint32_t>(bytes >> 32);
}

// Stores the transpose of the tile: row c of `out` is column c of the matrix, which has `cols` columns. Call after a
// barrier. Adjacent threads process four octets of each of eight columns, which avoids bank conflicts and writes 4 b
// contiguous bytes.
BITGRAD_DEVICE inline void store_transposed(const uint32_t* tile, const TilePlace& at, int64_t cols,
                                            const CodeRows& out) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(tile);
  for (int i = static_cast<int>(threadIdx.x); i < kTileOctets; i += kTileThreads) {
    const int o = (i & 3) | ((i >> 5 & 3) << 2), c = (i >> 2 & 7) | (i >> 7) << 3;
    if (at.col + c >= cols) continue;
    uint64_t codes = 0;
    for (int k = 0; k < 8; ++k) codes |= static_cast<uint64_t>(bytes[(8 * o + k) * kTilePitch + c]) << (k * out.bits);
    store_octet(out, at.col + c, at.row / 8 + o, codes);
  }
}

}  // namespace bitgrad::cuda
