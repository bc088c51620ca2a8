// Convolutions written as loops over images, output pixels, taps and channels, in double or int64, without gathering or
// im2col; and random geometries at and beyond the edges of words, maps and windows.
#pragma once

#include <array>
#include <sstream>
#include <string>
#include <vector>

#include "bitgrad/ops/spatial.h"
#include "support/gemm_reference.h"

namespace bitgrad::test {

// Images [n,h,w,c], weights [o, taps * c/groups], results [n,oh,ow,o].
struct ConvGeometry {
  int64_t n = 1, h = 1, w = 1, c = 1, o = 1;
  Conv2dOptions options = {};

  // Number of windows along an axis (0: rows, 1: columns); 0 if none fits.
  int64_t out(size_t axis) const {
    const int64_t size = (axis == 0 ? h : w) + options.padding[axis] + options.padding[axis + 2];
    const int64_t rest = size - (options.kernel[axis] - 1) * options.dilation[axis] - 1;
    return rest < 0 ? 0 : rest / options.stride[axis] + 1;
  }
  int64_t taps() const { return options.kernel[0] * options.kernel[1]; }
  int64_t in_group() const { return c / options.groups; }
  int64_t out_group() const { return o / options.groups; }
  int64_t k() const { return taps() * in_group(); }
  int64_t windows() const { return out(0) * out(1); }  // per image
  int64_t pixels() const { return n * windows(); }
  int64_t products() const { return pixels() * o * k(); }
  Shape x_shape() const { return {n, h, w, c}; }
  Shape w_shape() const { return {o, k()}; }
  Shape y_shape() const { return {n, out(0), out(1), o}; }

  std::string text() const {
    std::ostringstream s;
    const auto list = [&s](const char* name, const auto& a) {
      s << ", " << name << " {";
      for (size_t i = 0; i < a.size(); ++i) s << (i > 0 ? "," : "") << a[i];
      s << '}';
    };
    s << "n " << n << ", h " << h << ", w " << w << ", c " << c << ", o " << o;
    list("kernel", options.kernel);
    list("stride", options.stride);
    list("dilation", options.dilation);
    list("padding", options.padding);
    s << ", pad_value " << options.pad_value << ", groups " << options.groups;
    return s.str();
  }
};

// Calls visit(m, tap, pixel) for every output pixel m and tap; pixel: the pixel of x that the tap reads, -1 if outside.
template <typename Visit>
void for_taps(const ConvGeometry& g, Visit visit) {
  const Conv2dOptions& p = g.options;
  int64_t m = 0;
  for (int64_t image = 0; image < g.n; ++image)
    for (int64_t oy = 0; oy < g.out(0); ++oy)
      for (int64_t ox = 0; ox < g.out(1); ++ox, ++m)
        for (int64_t ky = 0; ky < p.kernel[0]; ++ky)
          for (int64_t kx = 0; kx < p.kernel[1]; ++kx) {
            const int64_t y = oy * p.stride[0] + ky * p.dilation[0] - p.padding[0];
            const int64_t x = ox * p.stride[1] + kx * p.dilation[1] - p.padding[1];
            const bool inside = y >= 0 && y < g.h && x >= 0 && x < g.w;
            visit(m, ky * p.kernel[1] + kx, inside ? (image * g.h + y) * g.w + x : -1);
          }
}

// Whether some tap of some window lies outside the image.
inline bool reads_outside(const ConvGeometry& g) {
  bool outside = false;
  ConvGeometry one = g;
  one.n = 1;
  for_taps(one, [&](int64_t, int64_t, int64_t pixel) { outside = outside || pixel < 0; });
  return outside;
}

// Calls visit(element of y, element of x or -1, channel of x, element of w) for every product of the convolution.
// Products of one element of y come in ascending order of the columns of w.
template <typename Visit>
void for_products(const ConvGeometry& g, Visit visit) {
  const int64_t k = g.k(), inputs = g.in_group(), outputs = g.out_group(), o = g.o, c = g.c;
  for_taps(g, [&](int64_t m, int64_t tap, int64_t pixel) {
    for (int64_t j = 0; j < o; ++j) {
      const int64_t first = j / outputs * inputs;
      for (int64_t i = 0; i < inputs; ++i)
        visit(m * o + j, pixel < 0 ? -1 : pixel * c + first + i, first + i, j * k + tap * inputs + i);
    }
  });
}

// y, gx and gw for values x, w and gy. pads: the value of pixels outside the image, per channel.
template <typename T>
std::vector<T> conv_forward(const ConvGeometry& g, const std::vector<T>& x, const std::vector<T>& w,
                            const std::vector<T>& pads) {
  std::vector<T> y(static_cast<size_t>(g.y_shape().numel()));
  for_products(g, [&](int64_t iy, int64_t ix, int64_t channel, int64_t iw) {
    y[static_cast<size_t>(iy)] +=
        (ix < 0 ? pads[static_cast<size_t>(channel)] : x[static_cast<size_t>(ix)]) * w[static_cast<size_t>(iw)];
  });
  return y;
}
template <typename T>
std::vector<T> conv_gx(const ConvGeometry& g, const std::vector<T>& gy, const std::vector<T>& w) {
  std::vector<T> gx(static_cast<size_t>(g.x_shape().numel()));
  for_products(g, [&](int64_t iy, int64_t ix, int64_t, int64_t iw) {
    if (ix >= 0) gx[static_cast<size_t>(ix)] += gy[static_cast<size_t>(iy)] * w[static_cast<size_t>(iw)];
  });
  return gx;
}
template <typename T>
std::vector<T> conv_gw(const ConvGeometry& g, const std::vector<T>& gy, const std::vector<T>& x,
                       const std::vector<T>& pads) {
  std::vector<T> gw(static_cast<size_t>(g.w_shape().numel()));
  for_products(g, [&](int64_t iy, int64_t ix, int64_t channel, int64_t iw) {
    gw[static_cast<size_t>(iw)] +=
        gy[static_cast<size_t>(iy)] * (ix < 0 ? pads[static_cast<size_t>(channel)] : x[static_cast<size_t>(ix)]);
  });
  return gw;
}

// The rows of im2col, [pixels, taps * c], in double; pixels outside have the value `pad`. One group only.
inline std::vector<double> conv_columns(const ConvGeometry& g, const std::vector<double>& x, double pad) {
  std::vector<double> a(static_cast<size_t>(g.pixels() * g.taps() * g.c), pad);
  for_taps(g, [&](int64_t m, int64_t tap, int64_t pixel) {
    for (int64_t i = 0; i < g.c && pixel >= 0; ++i)
      a[static_cast<size_t>((m * g.taps() + tap) * g.c + i)] = x[static_cast<size_t>(pixel * g.c + i)];
  });
  return a;
}

inline void draw_groups(Rng& rng, ConvGeometry& g) {
  const int64_t form = uniform_int(rng, 0, 4);
  if (form == 0) {  // depthwise, one or two outputs per channel
    g.options.groups = g.c;
    g.o = g.c * uniform_int(rng, 1, 2);
  } else if (form == 1) {  // some divisor of c
    for (g.options.groups = uniform_int(rng, 1, g.c); g.c % g.options.groups != 0; --g.options.groups) continue;
    g.o = g.options.groups * log_uniform(rng, std::max<int64_t>(1, 70 / g.options.groups));
  } else {
    g.options.groups = 1;
    g.o = uniform_int(rng, 0, 7) == 0 ? uniform_int(rng, 1, 70) : log_uniform(rng, 70);
  }
}

// n 0 .. 3, maps of 1 .. 17 pixels (some smaller than the kernel), kernels 1 .. 5, strides and dilations 1 .. 3,
// asymmetric padding 0 .. 4, c 1 .. 130, o 1 .. 70 (depthwise up to 260), at most max_products products.
inline ConvGeometry random_geometry(Rng& rng, int64_t max_products = 150000) {
  static constexpr int64_t kChannels[] = {1, 3, 15, 16, 63, 64, 65, 96, 127, 128, 130};
  for (;;) {
    ConvGeometry g;
    g.n = uniform_int(rng, 0, 15) == 0 ? 0 : uniform_int(rng, 1, 3);
    g.h = uniform_int(rng, 1, 17);
    g.w = uniform_int(rng, 1, 17);
    g.c = uniform_int(rng, 0, 1) == 0 ? kChannels[uniform_int(rng, 0, std::ssize(kChannels) - 1)]
                                      : uniform_int(rng, 1, 130);
    const bool padded = uniform_int(rng, 0, 3) != 0, square = uniform_int(rng, 0, 1) == 0,
               pointwise = uniform_int(rng, 0, 19) == 0;  // each window is one pixel
    for (size_t axis = 0; axis < 2; ++axis) {
      g.options.kernel[axis] = uniform_int(rng, 1, 5);
      g.options.stride[axis] = uniform_int(rng, 1, 3);
      g.options.dilation[axis] = uniform_int(rng, 0, 1) == 0 ? 1 : uniform_int(rng, 1, 3);
    }
    for (int64_t& pad : g.options.padding) pad = padded ? uniform_int(rng, 0, 4) : 0;
    if (square) {
      g.options.kernel[1] = g.options.kernel[0];
      g.options.stride[1] = g.options.stride[0];
      g.options.padding.fill(g.options.padding[0]);
    }
    if (pointwise) g.options = {};
    g.options.pad_value = static_cast<int>(std::max<int64_t>(-1, uniform_int(rng, -2, 1)));
    if (uniform_int(rng, 0, 2) == 0) g.options.pad_value = 0;
    draw_groups(rng, g);
    if (g.windows() > 0 && g.products() <= max_products) return g;
  }
}

}  // namespace bitgrad::test
