// Fragment layouts of mma.sync in steps of 32 bytes (PTX ISA, "Matrix fragments for mma.m16n8k32", "m16n8k256" and
// "m16n8k16"): which matrix element each register of a lane contains. m16n8k32 on bytes, m16n8k256 on bits and m16n8k16
// on bf16 place their bytes identically.
//   A [16 rows][32 bytes], B [8 columns][32 bytes], D [16 rows][8 columns] of int32 (fp32 for bf16).
#pragma once

#include "bitgrad/base/device.h"

namespace bitgrad::cuda::mma {

inline constexpr int kRows = 16, kColumns = 8, kBytes = 32, kRegistersA = 4, kRegistersB = 2, kRegistersD = 4;

// Register r of a lane contains four consecutive bytes of a row (A) or column (B).
BITGRAD_HD constexpr int a_row(int lane, int r) { return lane / 4 + 8 * (r % 2); }
BITGRAD_HD constexpr int a_byte(int lane, int r) { return lane % 4 * 4 + 16 * (r / 2); }
BITGRAD_HD constexpr int b_column(int lane, int) { return lane / 4; }
BITGRAD_HD constexpr int b_byte(int lane, int r) { return lane % 4 * 4 + 16 * r; }
BITGRAD_HD constexpr int d_row(int lane, int r) { return lane / 4 + 8 * (r / 2); }
BITGRAD_HD constexpr int d_column(int lane, int r) { return lane % 4 * 2 + r % 2; }

// ldmatrix: each of four matrices has 8 rows of 16 bytes. Lanes 8i .. 8i + 7 supply the row addresses of matrix i; lane
// l receives bytes 4 (l % 4) .. 4 (l % 4) + 3 of row l / 4 of each matrix. For an A fragment lane l therefore points to
// row l % 16 and 16-byte chunk l / 16; for two B fragments (columns 0..7, 8..15), to column l % 8 + 8 (l / 16) and
// chunk l / 8 % 2.
BITGRAD_HD constexpr int load_a_row(int lane) { return lane % 16; }
BITGRAD_HD constexpr int load_a_chunk(int lane) { return lane / 16; }
BITGRAD_HD constexpr int load_b_column(int lane) { return lane % 8 + lane / 16 * 8; }
BITGRAD_HD constexpr int load_b_chunk(int lane) { return lane / 8 % 2; }

// Offset of 16-byte chunk `chunk` of row `row` in shared memory, for rows of 64 bytes. The swizzle spreads the eight
// rows of an ldmatrix, and the four rows copied by a quarter-warp, over all banks.
BITGRAD_HD constexpr int swizzle64(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1)) & 3) * 16; }

}  // namespace bitgrad::cuda::mma
