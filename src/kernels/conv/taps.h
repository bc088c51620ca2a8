// Locations of the taps of windows.
#pragma once

#include <algorithm>

#include "bitgrad/base/device.h"
#include "kernels/conv.h"

namespace bitgrad::kernels::conv {

// Iterates over windows, on the CPU.
class WindowCursor {
 public:
  WindowCursor(const WindowGeometry& g, int64_t m)
      : g_(g), image_(m / g.windows()), oy_(m % g.windows() / g.ow), ox_(m % g.ow) {}
  void next() {
    if (++ox_ < g_.ow) return;
    ox_ = 0;
    if (++oy_ < g_.oh) return;
    oy_ = 0;
    ++image_;
  }
  // Equivalent to `count` calls of next(), all within this row of windows.
  void skip(int64_t count) {
    ox_ += count - 1;
    next();
  }
  int64_t ox() const { return ox_; }
  // Row of pixels (over all images) of tap row ky; negative: outside.
  int64_t row(int64_t ky) const {
    const int64_t y = oy_ * g_.stride_y + ky * g_.dilation_y - g_.top;
    return y < 0 || y >= g_.h ? -1 : image_ * g_.h + y;
  }
  // Column of tap column 0; may be outside the image.
  int64_t column() const { return ox_ * g_.stride_x - g_.left; }

 private:
  const WindowGeometry& g_;
  int64_t image_, oy_, ox_;
};

// Tap columns [begin, end) whose pixels are inside the image, for a window whose first column is `column`.
struct TapRange {
  int64_t begin, end;
};
inline TapRange inside(const WindowGeometry& g, int64_t column) {
  const int64_t d = g.dilation_x;
  const int64_t begin = column >= 0 ? 0 : std::min(g.kw, (-column + d - 1) / d);
  const int64_t end = column >= g.w ? begin : std::min(g.kw, (g.w - column + d - 1) / d);
  return {begin, std::max(begin, end)};
}

// ---- the vectorized direct convolutions (binary/, first_layer/) ----
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
