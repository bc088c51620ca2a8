// Products of bits: exclusive or (or and) of words, followed by a population count. docs/numerics.md section 4.
//
//   b1 x b1:  dot = K - 2 popc(a ^ w)
//   t x b1:   dot = 2 popc(p0 & (p1 ^ w)) - popc(p0)
//   t x t:    dot = popc(k) - 2 popc(k & (a1 ^ b1)), k = a0 & b0
//   q2 x b1:  dot = 2 (popc(a0 & w) + h popc(a1 & w)) - (popc(a0) + h popc(a1)), h = -2 (int2) or 2 (uint2)
// The planes of t are p0 = nonzero and p1 = negative; those of q2 are the bits of the code. A is stored in rows (of
// planes), B in panels of 16 rows, so that the columns of C lie across lanes and no horizontal sum is needed. An
// instruction set provides one tile function per kind of dot; the loops around it are shared (popcount.cpp). Bits
// beyond k are ignored on both sides.
#pragma once

#include <cstdint>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

// The kinds of dot: dot = base[row] + kFactor * count, with base = K, -popc(p0), 0 or -(popc(a0) + h popc(a1)). Kinds
// with two sums use count = first + kHigh * second.
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

// One register tile: up to 4 rows of A times up to 4 panels of B, over all of k.
struct BitTile {
  const uint32_t* a[2];  // plane p of the first row
  int64_t a_step;        // words between rows
  const uint32_t* b[2];  // plane p of the first panel
  int64_t b_step;        // words between panels
  int64_t words;         // full 32-bit words of k
  uint32_t tail;         // mask of a partial last word; 0: none
  int32_t* dots;         // [row][kMaxTileColumns], unless `direct`
  const int32_t* base;   // [row]
  // fp32 results that the tile writes itself: y = float(dot) * (sa * sb) (+ bias)
  bool direct;
  float* c;
  int64_t ldc;
  int64_t columns;    // columns of the tile that exist
  const float* sa;    // [row]
  const float* sb;    // [kMaxTileColumns]
  const float* bias;  // [kMaxTileColumns], or null
};

// The functions that an instruction set provides for one kind of dot.
struct BitKernel {
  int rows, panels;  // the largest tile, at most 4 x 4
  void (*tile)(int rows, int panels, const BitTile& tile);
  int32_t (*count_row)(const uint32_t* row, int64_t words, uint32_t tail);  // popc of a row of one plane of A
  bool direct;                                                              // whether tile() can write fp32 itself
};

// For Dot = DotB1B1, DotTB1, DotTT, DotI2B1, DotU2B1: whether codes, scales and output are those of a product of bits.
template <typename Dot>
bool popcount_supports(const GemmArgs& args);
// The loops: cut into blocks by shape, tiles, scaling. a.data and b.data must have the layouts of the kernel's entry in
// kernels.inc.
template <typename Dot>
void popcount_gemm(const GemmArgs& args, const BitKernel& kernel);
// Estimated nanoseconds if full tiles reach `gmacs` multiply-adds per nanosecond. Unused lanes of the last panel count
// as work.
double popcount_cost(const GemmArgs& args, const BitKernel& kernel, double gmacs);

// The functions of a line of kernels.inc, run by kKernel<Dot>. `base` is added to the cost.
#define BITGRAD_POPCOUNT_KERNEL(name, Dot, gmacs, base)                                                  \
  bool name##_supports(const GemmArgs& args) { return popcount_supports<Dot>(args); }                    \
  double name##_cost(const GemmArgs& args) { return (base) + popcount_cost(args, kKernel<Dot>, gmacs); } \
  void name(const GemmArgs& args) { popcount_gemm<Dot>(args, kKernel<Dot>); }

}  // namespace bitgrad::kernels::gemm_detail
