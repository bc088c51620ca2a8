// Rows of floats as base-256 digits of a fixed-point value with one unit per row. docs/numerics.md section 4, orders
// digits3 and digits2.
//
// For row i, with a = max abs x[i,k] over all of k, P digits and Q = 127 (256^P - 1) / 255: e is the smallest integer
// with rint(a 2^-e) <= Q (if a = 0: e = 0), and q = rint(x 2^-e) = sum_p d_p 256^(P-1-p). Digits after the first are in
// -128 .. 127. A row that contains NaN or Inf has unit NaN and digits 0.
#pragma once

#include <cstdint>

#include "kernels/gemm/tiles/amx_operand.h"

namespace bitgrad::kernels::gemm_detail {

// units[r] = 2^e of row block.i0 + r. Reads all of k, regardless of k0 and depth.
void find_units(const BlockOfA& block, int parts, double* units);
// out: [block][part][step][2][16 rows][64 bytes], parts part_bytes apart.
void put_digits(const BlockOfA& block, int parts, const double* units, int64_t part_bytes, uint8_t* out);

}  // namespace bitgrad::kernels::gemm_detail
