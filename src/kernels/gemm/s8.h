// Products of small integers: codes of at most 8 bits of kind int, uint or sign are expanded to bytes or 16-bit words,
// block by block, and multiplied exactly. docs/numerics.md section 4.
//
//   sum (qa - za) (qb - zb) = sum qa qb - za sum qb - zb sum qa + K za zb
// An instruction set brings the tile function; expansion, sums, zero points and the loops are shared (s8.cpp).
// A tile in bytes multiplies a = qa - shift_a (signed) with b = qb + off >= 0: sum qa qb = sum a b - off sum a +
// shift_a sum qb.
#pragma once

#include <cstdint>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::gemm_detail {

inline constexpr int kS8Lanes = 16;        // columns of a panel
inline constexpr int kS8TileColumns = 64;  // of the widest tile

// out[r][j] = row_start[r] + column_start[j] + sum over units. A unit is what one 32-bit lane holds: 4 bytes or 2 words
// along k.
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

struct S8Kernel {
  int rows, panels;  // the largest tile: at most 6 x 4
  bool words;        // 16-bit words, else bytes
  void (*tile)(int rows, int panels, const S8Tile& tile);
};

bool s8_supports(const GemmArgs& args);
void s8_gemm(const GemmArgs& args, const S8Kernel& kernel);
// Nanoseconds at `gmacs` multiply-adds a nanosecond and `expand` nanoseconds for a code of either operand.
double s8_cost(const GemmArgs& args, double gmacs, double expand);

}  // namespace bitgrad::gemm_detail
