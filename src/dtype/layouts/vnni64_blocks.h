// Blocks of codes in bytes to lines of vnni64, with AVX-512 (vnni64_avx512.cpp).
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// 16 rows (null: zero) of at most 64 codes -> lines of one panel from step 0 of the block on, `line_step` bytes apart;
// u = code ^ flip. sums[r]: eight parts of the sum of u, added to.
struct VnniRows {
  const uint8_t* rows[16];
  int64_t count;  // of codes, 1 .. 64
  int fields;
  uint8_t flip;
  uint8_t* out;
  int64_t line_step;
  uint64_t (*sums)[8];
};
void vnni64_rows_avx512(const VnniRows& block);

// 4 * fields rows (null: zero) of at most 64 codes, the free indices of one group -> its 1 to 4 lines of one step, one
// behind the other. sums[i] += sum of u of free index i.
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
