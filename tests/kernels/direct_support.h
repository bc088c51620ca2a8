// Random convolutions and their sums by direct loops, for the tests of direct convolutions.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "bitgrad/base/rng.h"
#include "kernels/conv.h"
#include "support/numbers.h"

namespace bitgrad::test {

using namespace kernels;

struct Draw {
  RandomStream stream;
  uint64_t at = 0;
  int64_t operator()(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(stream.bits32(at++) % static_cast<uint32_t>(hi - lo + 1));
  }
  bool flip() { return (*this)(0, 1) == 1; }
};

inline WindowGeometry random_geometry(Draw& draw) {
  WindowGeometry g;
  g.kh = draw(1, 4);
  g.kw = draw(1, 4);
  g.h = draw(g.kh, 9);
  g.w = draw(g.kw, draw.flip() ? 9 : 36);
  g.top = draw(0, g.kh);
  g.left = draw(0, g.kw);
  g.stride_y = g.stride_x = draw.flip() ? 1 : draw(2, 3);
  g.oh = (g.h + g.top + draw(0, g.kh) - g.kh) / g.stride_y + 1;
  g.ow = (g.w + g.left + draw(0, g.kw) - g.kw) / g.stride_x + 1;
  return g;
}

// f(window, pixel or -1, tap) for every tap of every window.
inline void for_taps(const WindowGeometry& g, int64_t images, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  for (int64_t m = 0; m < images * g.windows(); ++m) {
    const int64_t image = m / g.windows(), oy = m % g.windows() / g.ow, ox = m % g.ow;
    for (int64_t tap = 0; tap < g.taps(); ++tap) {
      const int64_t y = oy * g.stride_y + tap / g.kw - g.top, x = ox * g.stride_x + tap % g.kw - g.left;
      const bool in = y >= 0 && y < g.h && x >= 0 && x < g.w;
      f(m, in ? (image * g.h + y) * g.w + x : -1, tap);
    }
  }
}

// A forward convolution, or gx (input_gradient: x is gy), and its sums in double with those of absolute values.
struct DirectProblem {
  explicit DirectProblem(uint64_t seed) : draw{{seed, Purpose::kUser, 7, 0}} {
    g = random_geometry(draw);
    images = draw(1, 3);
    c = draw(0, 3) == 0 ? draw(60, 70) : draw(1, 40);
    o = draw(0, 3) == 0 ? draw(30, 66) : draw(1, 20);
  }
  Draw draw;
  WindowGeometry g;
  int64_t images, c, o;
  int pad = 0;
  std::vector<double> sums, sizes;

  Shape image(bool input_gradient) const {
    return input_gradient ? Shape{images, g.oh, g.ow, c} : Shape{images, g.h, g.w, c};
  }
  int64_t rows(bool input_gradient) const { return images * (input_gradient ? g.pixels() : g.windows()); }

  void sum(const std::vector<double>& x, const std::vector<double>& w, bool input_gradient) {
    sums.assign(static_cast<size_t>(rows(input_gradient) * o), 0);
    sizes = sums;
    const int64_t taps = g.taps();
    for_taps(g, images, [&](int64_t m, int64_t pixel, int64_t tap) {
      if (input_gradient && pixel < 0) return;
      for (int64_t i = 0; i < c; ++i) {
        const double v = input_gradient ? x[static_cast<size_t>(m * c + i)]
                         : pixel < 0    ? pad
                                        : x[static_cast<size_t>(pixel * c + i)];
        for (int64_t j = 0; j < o; ++j) {
          const int64_t at = input_gradient ? (i * taps + tap) * o + j : (j * taps + tap) * c + i;
          const double term = v * w[static_cast<size_t>(at)];
          const int64_t to = (input_gradient ? pixel : m) * o + j;
          sums[static_cast<size_t>(to)] += term;
          sizes[static_cast<size_t>(to)] += std::abs(term);
        }
      }
    });
  }
  DirectConvArgs args(const Tensor& x, const Tensor& w, bool input_gradient, const Tensor& y) const {
    DirectConvArgs a;
    a.geometry = g;
    a.images = images;
    a.channels = c;
    a.outputs = o;
    a.image = x.data();
    a.dtype = x.dtype();
    a.stride = x.stride();
    a.pad_value = pad;
    a.w = w.data();
    a.w_dtype = w.dtype();
    a.w_stride = w.stride();
    a.input_gradient = input_gradient;
    a.c = y.data();
    a.c_dtype = y.dtype();
    a.ldc = o;
    return a;
  }

  DirectWeightsArgs weights_args(const Tensor& x, const Tensor& gy, const Tensor& gw) const {
    DirectWeightsArgs a;
    a.geometry = g;
    a.images = images;
    a.channels = c;
    a.outputs = o;
    a.image = x.data();
    a.dtype = x.dtype();
    a.stride = x.stride();
    a.pad_value = pad;
    a.gy = gy.data();
    a.gy_dtype = gy.dtype();
    a.gy_stride = gy.stride();
    a.c = gw.data();
    return a;
  }
};

// Strides that may differ, kernels of up to 7 pixels, and channels at the edges of 16.
inline DirectProblem lane_problem(uint64_t seed) {
  DirectProblem p(seed);
  WindowGeometry& g = p.g;
  if (p.draw.flip()) {
    g.kh = p.draw(1, 7);
    g.kw = p.draw(1, 7);
    g.h = p.draw(1, 9);
    g.w = p.draw(1, 20);
    g.top = p.draw(0, g.kh);
    g.left = p.draw(0, g.kw);
    g.stride_y = p.draw(1, 4);
    g.stride_x = p.draw(1, 4);
    g.oh = (std::max(g.h + g.top + p.draw(0, g.kh), g.kh) - g.kh) / g.stride_y + 1;
    g.ow = (std::max(g.w + g.left + p.draw(0, g.kw), g.kw) - g.kw) / g.stride_x + 1;
  }
  p.images = p.draw(1, 9);
  p.o = p.draw.flip() ? p.draw(1, 3) * 16 + p.draw(-1, 1) : p.o;
  return p;
}

}  // namespace bitgrad::test
