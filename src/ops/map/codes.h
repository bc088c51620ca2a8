// Copies packed codes along their packed axis, and checks parameters whose values only the device knows.
#pragma once

#include "ops/map/list.h"

namespace bitgrad::maps {

// Copies rows of `count` bits to bits [first, first + count) of the rows of `out`, which must be zero there; pad bits
// of `in` must be zero. Index: row * words() + word of the result that the bits touch.
struct PlaceBits {
  const uint64_t* in;
  int64_t in_words;  // words per row
  int64_t first, count;
  uint64_t* out;
  int64_t out_words;

  BITGRAD_HD int64_t words() const { return count == 0 ? 0 : (first + count - 1) / 64 - first / 64 + 1; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / words(), to = first / 64 + (i - r * words());
    const int64_t from = to * 64 - first;  // bit of `in` that maps to bit 0 of the word; negative in the first word
    const uint64_t* const row = in + r * in_words;
    uint64_t bits = 0;
    if (from < 0) {
      bits = row[0] << -from;
    } else {
      const int64_t word = from / 64;
      const int shift = static_cast<int>(from % 64);
      bits = row[word] >> shift;
      if (shift != 0 && word + 1 < in_words) bits |= row[word + 1] << (64 - shift);
    }
    out[r * out_words + to] |= bits;
  }
};

// Sets bit 1 in `flags` if two words differ.
struct FlagUnequal {
  const uint32_t *a, *b;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t i) const {
    if (a[i] != b[i]) or_flag(flags, 1u);
  }
};

// Sets bit 1 in flags if a value is outside [lo, hi].
struct FlagOutside {
  const int32_t* numbers;
  int64_t lo, hi;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t i) const {
    if (numbers[i] < lo || numbers[i] > hi) or_flag(flags, 1u);
  }
};

}  // namespace bitgrad::maps
