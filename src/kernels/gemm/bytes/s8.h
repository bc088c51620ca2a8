// Products of small integers: codes of at most 8 bits of kind int, uint or sign are expanded block by block to bytes or
// 16-bit words and multiplied exactly. docs/numerics.md section 4.
//
//   sum (qa - za) (qb - zb) = sum qa qb - za sum qb - zb sum qa + K za zb
// An instruction set provides the tile functions. Expansion (s8_expand), the cut (s8_plan), sums, zero points and the
// loops (s8_chunk: a single sum, and large groups; s8_groups: small groups) are shared. A tile in bytes multiplies a =
// qa - ca >= 0 with b = qb - cb (signed), where ca and cb are constants of the dtypes:
//   sum qa qb = sum a b + ca sum b + cb sum qa.
// Tiles in words have ca = cb = 0.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/bytes/s8_expand.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {

inline constexpr int kS8Lanes = 16;        // columns per panel
inline constexpr int kS8TileColumns = 64;  // of the widest tile

// out[r][j] = row_start[r] + column_start[j] + sum over units. A unit is the content of one 32-bit lane: 4 bytes or 2
// words along k.
struct S8Tile {
  const void* a;  // [row][unit], rows a_step bytes apart
  int64_t a_step;
  const void* b;  // [panel][unit][16 columns], panels b_step bytes apart
  int64_t b_step;
  int64_t units;
  const int32_t* row_start;
  const int32_t* column_start;
  int32_t* out;  // [row][kS8TileColumns]
};

// Headers before the units of one group, for a row of A and for a panel of B. x and y are two 16-bit words per lane.
struct S8GroupOfA {
  int16_t x[2];
  float sum;  // sum of qa - za
};
struct S8GroupOfB {
  int32_t start[kS8Lanes];
  int16_t y[kS8Lanes][2];
  float scale[kS8Lanes], offset[kS8Lanes];
};
// For g ascending: acc = start[j] + sum over units (+ x[0] y[j][0] + x[1] y[j][1] if corrected, modulo 2^32);
//   t[r][j] = t[r][j] + float(acc) * scale[j], or with offsets t[r][j] + (float(acc) * scale[j] + sum[r] * offset[j]).
struct S8GroupTile {
  const char* a;  // [row][group]{S8GroupOfA, units}, rows a_step bytes apart
  int64_t a_step;
  const char* b;  // [panel][group]{S8GroupOfB, units of 16 columns}, panels b_step bytes apart
  int64_t b_step;
  int64_t groups, units;
  bool corrected, offsets;
  float* t;  // [row], rows t_step floats apart
  int64_t t_step;
};

// Costs in nanoseconds: 1 / gmacs per multiply-add, group_ns to scale and add one group of one output, expand per code
// of either operand.
struct S8Rates {
  double gmacs, group_ns, expand;
};

struct S8Kernel {
  int rows, panels;  // the largest tile: at most 6 x 4
  bool words;        // 16-bit words, otherwise bytes
  void (*tile)(int rows, int panels, const S8Tile& tile);
  int group_panels;  // the largest tile with groups: rows x this
  void (*group_tile)(int rows, int panels, const S8GroupTile& tile);
  // sums[j] = sum of the bytes (or words) of column j of a panel.
  void (*panel_sums)(const char* panel, int64_t units, int32_t* sums);
  S8Rates rates;
};

bool s8_supports(const GemmArgs& args);
void s8_gemm(const GemmArgs& args, const S8Kernel& kernel);
double s8_cost(const GemmArgs& args, const S8Kernel& kernel);

// How a small-integer product is cut: by shape, dtypes and parameters, never by the number of threads.

inline constexpr int64_t kBlockRows = 384, kBlockColumns = 256;  // of a block of C

// Everything about the call that is the same for all blocks of C.
struct S8Plan {
  const GemmArgs& args;
  const S8Kernel& kernel;
  IntegerProduct kind;
  ByteRange a, b;
  int64_t element;        // bytes per expanded code
  int64_t ca, cb;         // for tiles in bytes, otherwise 0
  int64_t group;          // contracted indices per exact sum
  int64_t depth, step;    // k per block, and k rounded up to a multiple of 8
  int64_t rows, columns;  // of a block of C
  bool zeros;
  bool small_groups;  // run by s8_groups.cpp
  double bound;       // bound on the absolute value of every sum and of all terms in it

  S8Plan(const GemmArgs& args, const S8Kernel& kernel);
  // Whether a single sum spans several blocks of k, so that sums are kept between them.
  bool several_blocks() const { return group > depth; }
  // Writes qa - ca of `count` codes of expand_strip as bytes or words, padded up to `padded` (the padding is multiplied
  // by zeros of B).
  void put_a(const int8_t* codes, int64_t count, int64_t padded, void* out) const;
};

// For products in small groups: the maximum block of k, in bytes per expanded code, and the maximum number of groups in
// it.
inline constexpr int64_t kGroupDepthBytes = 512, kMaxGroups = 32;
// Padded size of a group in codes: whole 32-bit units.
inline int64_t padded_group(int64_t group, int64_t element) { return round_up(group, 4 / element); }

// Compute one block of C: rows from i0 and columns from j0, at most plan.rows x plan.columns.
void run_s8_chunk(const S8Plan& plan, int64_t i0, int64_t j0);   // !plan.small_groups, plan.bound <= 2^62
void run_s8_groups(const S8Plan& plan, int64_t i0, int64_t j0);  // plan.small_groups

}  // namespace bitgrad::kernels::gemm_detail
