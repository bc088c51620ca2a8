// Splits two-bit codes into a word of low bits and a word of high bits.
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// low[w] and high[w]: bits 0 and bits 1 of the 64 two-bit codes in words 2 w and 2 w + 1 of `in` (any alignment).
void split_pairs(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high);

}  // namespace bitgrad::detail
