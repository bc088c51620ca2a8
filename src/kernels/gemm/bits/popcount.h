// Products of bits: exclusive or (and) of words, counted. docs/numerics.md section 4.
//
//   b1 x b1:  dot = K - 2 popc(a ^ w)
//   t x b1:   dot = 2 popc(p0 & (p1 ^ w)) - popc(p0)
//   t x t:    dot = popc(k) - 2 popc(k & (a1 ^ b1)), k = a0 & b0
//   q2 x b1:  dot = 2 (popc(a0 & w) + h popc(a1 & w)) - (popc(a0) + h popc(a1)), h = -2 (int2) or 2 (uint2)
// Of t p0 = not zero, p1 = negative; of q2 the bits of the code. A lies in rows (of planes), B in panels of 16 rows, so
// that columns of C are across lanes and no sum over lanes is ever taken. An instruction set brings a tile function per
// kind of dot; the loops around it are shared (popcount.cpp). Bits beyond k are ignored on both sides.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// The kinds of dot: dot = base[row] + kFactor * count, base = K, -popc(p0), 0 or -(popc(a0) + h popc(a1)). With two
// sums the count is the first one + kHigh * the second one.
struct DotB1B1 {
  static constexpr int kPlanesA = 1, kPlanesB = 1, kSums = 1, kHigh = 0, kFactor = -2;
};
struct DotTB1 {
  static constexpr int kPlanesA = 2, kPlanesB = 1, kSums = 1, kHigh = 0, kFactor = 2;
};
struct DotTT {
  static constexpr int kPlanesA = 2, kPlanesB = 2, kSums = 2, kHigh = -2, kFactor = 1;
};
template <int high>
struct DotQ2B1 {
  static constexpr int kPlanesA = 2, kPlanesB = 1, kSums = 2, kHigh = high, kFactor = 2;
};
using DotI2B1 = DotQ2B1<-2>;
using DotU2B1 = DotQ2B1<2>;

inline constexpr int kMaxTileRows = 4;
inline constexpr int kMaxTilePanels = 4;
inline constexpr int kMaxTileColumns = kMaxTilePanels * static_cast<int>(kPanelRows);

// One register tile: up to 4 rows of A times up to 4 panels of B over the whole of k.
struct BitTile {
  const uint32_t* a[2];  // plane p of the first row
  int64_t a_step;        // words between rows
  const uint32_t* b[2];  // plane p of the first panel
  int64_t b_step;        // words between panels
  int64_t words;         // full 32-bit words of k
  uint32_t tail;         // mask of one more, partial word; 0: none
  int32_t* dots;         // [row][kMaxTileColumns], if not `direct`
  const int32_t* base;   // [row]
  // fp32 results written by the tile itself: y = float(dot) * (sa * sb) (+ bias)
  bool direct;
  float* c;
  int64_t ldc;
  int64_t columns;    // true columns of the tile
  const float* sa;    // [row]
  const float* sb;    // [kMaxTileColumns]
  const float* bias;  // [kMaxTileColumns] or null
};

// What an instruction set brings for one kind of dot.
struct BitKernel {
  int rows, panels;  // the largest tile, at most 4 x 4
  void (*tile)(int rows, int panels, const BitTile& tile);
  int32_t (*count_row)(const uint32_t* row, int64_t words, uint32_t tail);  // popc of a row of a plane of A
  bool direct;                                                              // whether tile() can write fp32 itself
};

// Whether the codes, scales and output are those of a product of bits.
bool popcount_supports_b1_b1(const GemmArgs& args);
bool popcount_supports_t_b1(const GemmArgs& args);
bool popcount_supports_t_t(const GemmArgs& args);
bool popcount_supports_i2_b1(const GemmArgs& args);
bool popcount_supports_u2_b1(const GemmArgs& args);

// The loops: blocks cut by shape, tiles, scale. Reads a.data and b.data as the layouts of its row say.
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel, DotB1B1);
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel, DotTB1);
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel, DotTT);
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel, DotI2B1);
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel, DotU2B1);

// Nanoseconds when `gmacs` multiply-adds a nanosecond are reached on full tiles; lanes of the last panel count as work.
double popcount_cost(const GemmArgs& args, const BitKernel& kernel, double gmacs);

}  // namespace bitgrad::kernels::gemm_detail
