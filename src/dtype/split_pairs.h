// Codes of two bits apart into the words of their two bits.
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// low[w] and high[w]: bit 0 and bit 1 of the 64 two-bit codes in words 2 w and 2 w + 1 of `in` (any alignment).
void split_pairs(int64_t words, const uint8_t* in, uint64_t* low, uint64_t* high);

}  // namespace bitgrad::detail
