// Checks and helpers shared by the vectorized direct convolutions (binary/, first_layer/).
#pragma once

#include "kernels/conv.h"

namespace bitgrad::kernels::conv {

constexpr int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr bool inside(int64_t at, int64_t size) { return at >= 0 && at < size; }

// Whether sums of n int8 codes with signs are exact in fp32.
constexpr bool exact_in_floats(int64_t n) { return n <= (int64_t{1} << 24) / 127; }

// Whether the taps of a line are contiguous.
inline bool has_lines(const WindowGeometry& g) {
  return g.dilation_y == 1 && g.dilation_x == 1 && g.stride_y >= 1 && g.stride_x >= 1 && g.top >= 0 && g.left >= 0 &&
         g.windows() > 0;
}

// Whether some window reads a pixel outside. If its zero has no sign bit, gathered windows are ternary codes, which
// take longer.
inline bool reads_outside(const WindowGeometry& g) {
  return g.top > 0 || g.left > 0 || (g.oh - 1) * g.stride_y + g.kh - g.top > g.h ||
         (g.ow - 1) * g.stride_x + g.kw - g.left > g.w;
}

// 16 bits of a row from bit `at` on, with zeros from bit `end` on.
inline uint16_t bits_at(const char* row, int64_t at, int64_t end) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(row) + at / 8;
  const int64_t shift = at % 8, count = end - at < 16 ? end - at : 16;
  uint32_t v = bytes[0];
  if (shift + count > 8) v |= uint32_t{bytes[1]} << 8;
  if (shift + count > 16) v |= uint32_t{bytes[2]} << 16;
  return static_cast<uint16_t>((v >> shift) & ((1u << count) - 1u));
}

}  // namespace bitgrad::kernels::conv
