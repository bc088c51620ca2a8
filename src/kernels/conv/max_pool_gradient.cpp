// A task covers some rows of pixels. It visits the windows that overlap them, in ascending order, and writes the
// contributions to its own rows. For each window and tap, a mask marks the channels whose maximum is there.
#include "kernels/conv.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "kernels/conv/loops.h"
#include "kernels/conv/taps.h"

namespace bitgrad::kernels {
namespace {

using namespace conv;

constexpr int64_t kGradientPiece = 65536;  // elements of gx per task, approximately

// Whether every pixel lies in exactly one window.
bool tiles_image(const WindowGeometry& g) {
  return g.kh == g.stride_y && g.kw == g.stride_x && g.oh * g.kh - g.top >= g.h && g.ow * g.kw - g.left >= g.w;
}

class MaxPoolGradientRows {
 public:
  // gx: the pixels from row `origin` on.
  MaxPoolGradientRows(const MaxPoolGradientArgs& args, float* gx, int64_t origin)
      : args_(args),
        gx_(gx),
        origin_(origin),
        g_(args.geometry),
        loops_(conv::loops()),
        words_((args.channels + 63) / 64),
        adds_(!tiles_image(g_)),
        masks_(static_cast<size_t>(g_.taps() * words_)),
        to_(static_cast<size_t>(g_.taps())) {}

  // Rows [y0, y1) of an image.
  void run(int64_t image, int64_t y0, int64_t y1) {
    if (adds_) std::fill(row(image, y0), row(image, y1), 0.0f);
    const int64_t before = y0 + g_.top - g_.kh;  // the last row of windows that ends above y0 begins here or above
    const int64_t first = before < 0 ? 0 : before / g_.stride_y + 1;
    for (int64_t oy = first; oy < g_.oh && oy * g_.stride_y - g_.top < y1; ++oy)
      for (int64_t ox = 0; ox < g_.ow; ++ox) window(image, oy, ox, y0, y1);
  }

  // All rows [begin, end) of pixels of the images.
  void run(int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end;) {
      const int64_t y = r % g_.h, count = std::min(g_.h - y, end - r);
      run(r / g_.h, y, y + count);
      r += count;
    }
  }

 private:
  float* row(int64_t image, int64_t y) const { return gx_ + (image * g_.h + y - origin_) * g_.w * args_.channels; }

  void window(int64_t image, int64_t oy, int64_t ox, int64_t y0, int64_t y1) {
    const int64_t y = oy * g_.stride_y - g_.top, x = ox * g_.stride_x - g_.left;
    const int64_t ky0 = std::max<int64_t>(0, -y), ky1 = std::min(g_.kh, g_.h - y);
    const int64_t kx0 = std::max<int64_t>(0, -x), kx1 = std::min(g_.kw, g_.w - x);
    const int64_t columns = kx1 - kx0, number = (image * g_.oh + oy) * g_.ow + ox;
    if (args_.bits != nullptr) find_first(image * g_.h + y, x, {ky0, ky1}, {kx0, kx1});
    // Tap rows that belong to this task.
    const int64_t mine = std::max(ky0, y0 - y), end = std::min(ky1, y1 - y);
    uint64_t* const masks = masks_.data() + (mine - ky0) * columns * words_;
    int64_t terms = 0;
    for (int64_t ky = mine; ky < end; ++ky)
      for (int64_t kx = kx0; kx < kx1; ++kx, ++terms) {
        to_[static_cast<size_t>(terms)] = row(image, y + ky) + (x + kx) * args_.channels;
        if (args_.taps != nullptr)
          loops_.pool_matches({args_.channels, args_.taps + number * args_.channels, static_cast<int>(ky * g_.kw + kx),
                               masks + terms * words_});
      }
    loops_.pool_spread({args_.channels, terms, args_.gy + number * args_.channels, masks, words_, to_.data(), adds_});
  }

  // Computes the masks of a window for the taps inside it, in row-major order; row: of pixels, over all images.
  void find_first(int64_t row, int64_t x, TapRange ky, TapRange kx) {
    for (int64_t word = 0; word < words_; ++word) {
      uint64_t open = ~uint64_t{0};
      uint64_t* mask = masks_.data() + word;
      for (int64_t i = ky.begin; i < ky.end; ++i) {
        const uint64_t* from = args_.bits + ((row + i) * g_.w + x + kx.begin) * args_.words + word;
        for (int64_t k = kx.begin; k < kx.end; ++k, from += args_.words, mask += words_) {
          *mask = *from & open;
          open &= ~*from;
        }
      }
      masks_[static_cast<size_t>(word)] |= open;
    }
  }

  const MaxPoolGradientArgs& args_;
  float* const gx_;
  const int64_t origin_;
  const WindowGeometry& g_;
  const WindowLoops& loops_;
  int64_t words_;  // per mask
  bool adds_;
  std::vector<uint64_t> masks_;
  std::vector<float*> to_;
};

}  // namespace

void max_pool_gradient(const MaxPoolGradientArgs& args) {
  const WindowGeometry& g = args.geometry;
  const int64_t rows = args.images * g.h, row = std::max<int64_t>(1, g.w * args.channels);
  // Whole rows of windows if windows do not overlap or leave gaps.
  const int64_t grain = std::max<int64_t>(1, kGradientPiece / (row * g.stride_y)) * g.stride_y;
  parallel_ranges(rows, grain,
                  [&](int64_t begin, int64_t end) { MaxPoolGradientRows(args, args.gx, 0).run(begin, end); });
}

void max_pool_gradient_rows(const MaxPoolGradientArgs& args, int64_t begin, int64_t end, float* gx) {
  MaxPoolGradientRows(args, gx, begin).run(begin, end);
}

}  // namespace bitgrad::kernels
