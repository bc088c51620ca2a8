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

}  // namespace bitgrad::kernels::conv
