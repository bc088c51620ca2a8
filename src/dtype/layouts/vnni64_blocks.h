// AVX-512 packers of byte codes into lines of vnni64 (vnni64_avx512.cpp).
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// 16 rows (nullptr: zeros) of at most 64 codes -> lines of one panel, `line_step` bytes apart, starting at step 0 of
// the block. u = code ^ flip. The sum of u of row r is added to sums[r] as eight partial sums.
struct VnniRows {
  const uint8_t* rows[16];
  int64_t count;  // number of codes, 1 .. 64
  int fields;
  uint8_t flip;
  uint8_t* out;
  int64_t line_step;
  uint64_t (*sums)[8];
};
void vnni64_rows_avx512(const VnniRows& block);

// 4 * fields rows (nullptr: zeros) of at most 64 codes, the free indices of one group -> the group's 1 to 4 consecutive
// lines of one step. sums[i] += sum of u of free index i.
struct VnniColumns {
  const uint8_t* rows[32];
  int64_t count;
  int fields;
  uint8_t flip;
  uint8_t* out;
  uint32_t* sums;
};
void vnni64_columns_avx512(const VnniColumns& block);

}  // namespace bitgrad::detail
