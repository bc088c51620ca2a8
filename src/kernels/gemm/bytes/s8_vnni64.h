// The kernels for layouts vnni64 and vnni64_t (not panels16): products of small integers with B in that layout. B stays
// in fields of 1, 2, 4 or 8 bits in memory and is unpacked to bytes for a block of k, which stays in cache while rows
// of A are processed. docs/numerics.md section 4.
//
// A is a matrix of signed bytes x (int8: the codes themselves, read in place), B holds u >= 0 (layout.h):
//   qa = x + sa,  qb = f u + c  (f = 2 for kind sign, otherwise 1; c the lowest code)
//   sum (qa - za)(qb - zb) = f sum x u + beta_j P_i + alpha_i f U_j,
//   alpha_i = sa - za_i, beta_j = c - zb_j, P_i = sum x + K alpha_i, U_j = sum u, which the layout stores.
// All of it is computed modulo 2^32. That is exact, because the left side fits in int32; otherwise B is unpacked and
// another kernel computes the product. An instruction set provides the functions of S8PanelKernel; loops and
// corrections are shared (s8_vnni64.cpp).
#pragma once

#include <cstdint>

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int kS8PanelRows = 6;                                              // of the largest tile
inline constexpr int kS8PanelColumns = static_cast<int>(kVnniPanels * kPanelRows);  // per group

// One register tile: rows of A times the panels of one group, over a block of k. Pointers whose count is 0 (ahead,
// c_ahead) are not dereferenced and may be past the end of their memory.
struct S8PanelTile {
  const int8_t* a;  // [row][4 * units], rows a_step bytes apart
  int64_t a_step;
  const uint8_t* b;  // [unit][panel][16 columns][4]
  int64_t units;
  const uint8_t* ahead;  // memory to prefetch, `ahead_lines` lines of 64 bytes per 4 units
  int64_t ahead_lines;
  int32_t* sums;  // [row][kS8PanelColumns] sum x u; the tile adds to it, except for the `first` block of k
  bool first;
  // The tile of the last block writes C instead of sums (if the kernel supports it):
  //   dot = (sum << shift) + row_add[i] (+ row_by[i] * column_by[j], if column_by)
  //         (+ row_of_sums[i] * column_sums[j], if column_sums)
  //   C = float(dot) * (sa[i] * sb[j]) (+ bias[j]), or C + that if `accumulate`
  bool direct, accumulate;
  const float* c_ahead;  // [row] lines of C that a later tile writes, to prefetch
  int64_t c_ahead_rows;
  int shift;
  const int32_t *row_add, *row_by, *column_by, *row_of_sums, *column_sums;
  float* c;
  int64_t ldc, columns;  // columns: those of the group that exist
  const float *sa, *sb;  // sb: [kS8PanelColumns]
  const float* bias;     // [kS8PanelColumns], or null
};

// Costs in nanoseconds: 1 / gmacs[bits of B - 1] per multiply-add with B in bytes, open per unpacked code.
struct S8PanelRates {
  double gmacs[8], open;
};

struct S8PanelKernel {
  int rows;  // of the largest tile, at most kS8PanelRows
  int bits;  // of the widest B supported
  // `max`: the largest u.
  void (*tile)(int rows, int panels, int max, const S8PanelTile& tile);
  bool direct;  // whether tile() can write fp32 itself
  // The same for at most `few_rows` rows and a whole group of 4 panels of packed b, [step][panel][16 columns][4] with
  // `fields` (2, 4 or 8) units per byte. If B is used only once, unpacking it to memory costs more.
  // columns][4] of `fields` (2, 4 or 8) units a byte: where B is used once, opening it to memory costs more.
  int few_rows;
  void (*few_tile)(int rows, int fields, const S8PanelTile& tile);
  // Unpacks [steps][panels] lines of 64 bytes, each with `fields` units, to [steps * fields][panels] lines of bytes.
  void (*open)(const uint8_t* in, int64_t steps, int64_t panels, int fields, uint8_t* out);
  int32_t (*row_sum)(const int8_t* row, int64_t count);
  S8PanelRates rates;
};

// For sums that leave int32: unpacks B to canonical codes and runs a kernel for those, which has 64-bit sums.
void gemm_from_canonical(const GemmArgs& args);

bool s8_panels_supports(const GemmArgs& args, bool b_k_major, const S8PanelKernel& kernel);
double s8_panels_cost(const GemmArgs& args, const S8PanelKernel& kernel);
void s8_panels_gemm(const GemmArgs& args, const S8PanelKernel& kernel);

// The functions of a line of kernels.inc, run by kKernel. `base` is added to the cost.
#define BITGRAD_S8_PANEL_KERNEL(name, k_major_b, base)                                                \
  bool name##_supports(const GemmArgs& args) { return s8_panels_supports(args, k_major_b, kKernel); } \
  double name##_cost(const GemmArgs& args) { return (base) + s8_panels_cost(args, kKernel); }         \
  void name(const GemmArgs& args) { s8_panels_gemm(args, kKernel); }

}  // namespace bitgrad::kernels::gemm_detail
