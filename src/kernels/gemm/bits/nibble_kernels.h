// Reads rows of bits for the nibble counts from the layouts of A (rows of words) and of B (panels of 16 rows).
#pragma once

#include "kernels/gemm/bits/nibble.h"

namespace bitgrad::kernels::gemm_detail {

// What to read from the two planes of ternary codes: p0 (nonzero) and p1 (negative).
enum class Planes {
  kBits,     // one plane as it is
  kSigns,    // t >= 0, t > 0
  kProducts  // what counts for a 0 bit of the other operand, t < 0, and for a 1 bit, t > 0
};

struct BitRows {
  const uint8_t* plane[2];
  int64_t stride;  // bytes between rows or panels
  bool panels;
  int64_t rows, k;

  // Reads words [w0, w0 + 15) of rows [r0, r0 + 16) as [word][row], words `step` apart. r0 is a multiple of 16. Bits
  // beyond k are 0; rows past the end are read as zeros (with kSigns: t >= 0 up to k).
  void read(Planes planes, int64_t r0, int64_t w0, int64_t step, uint32_t* first, uint32_t* second) const;

 private:
  uint32_t mask(int64_t w) const;
  void read_plane(int p, int64_t r0, int64_t w0, int64_t words, int64_t step, uint32_t* out) const;
};
BitRows rows_of_a(const GemmArgs& args, bool ternary);
BitRows rows_of_b(const GemmArgs& args, bool ternary);

}  // namespace bitgrad::kernels::gemm_detail
