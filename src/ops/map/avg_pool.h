// Average pooling. docs/numerics.md section 10, "Images".
#pragma once

#include "ops/map/pool.h"

namespace bitgrad::maps {
namespace pools {

// 1 / the number of pixels of a window that lie inside the image.
template <typename Lane>
BITGRAD_HD inline Lane share(const Window& w) {
  return Lane{1} / static_cast<Lane>((w.y1 - w.y0) * (w.x1 - w.x0));
}

// y = (sum of the window in row-major order) * (1/count).
template <typename T, typename Lane>
struct MeanOfValues {
  Windows windows;
  const T* x;
  T* y;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    const Window window = windows.window(pixel);
    Lane sum[kRun];
    for (int64_t j = 0; j < count; ++j) sum[j] = Lane{0};
    windows.each(window, [&](int64_t from, int64_t) {
      const T* const values = x + from * windows.c + first;
      for (int64_t j = 0; j < count; ++j) sum[j] += load(values + j);
    });
    const Lane factor = share<Lane>(window);
    for (int64_t j = 0; j < count; ++j) store(y + pixel * windows.c + first + j, sum[j] * factor);
  }
};

// gx = the sum, over windows in ascending order, of gy * (1/count). Index: pixel of the images * runs() + run.
template <typename T>
struct MeanGradient {
  Windows windows;
  const T* gy;
  T* gx;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    T* const out = gx + pixel * windows.c + first;
    for (int64_t j = 0; j < count; ++j) out[j] = T{0};
    windows.covering(pixel, [&](int64_t from, int64_t) {
      const T factor = share<T>(windows.window(from));
      const T* const g = gy + from * windows.c + first;
      for (int64_t j = 0; j < count; ++j) out[j] += g[j] * factor;
    });
  }
};

}  // namespace pools

struct AvgPoolValues {
  pools::MeanOfValues<float, float> mean;
  BITGRAD_HD void operator()(int64_t i) const { mean(i); }
};
struct AvgPoolBf16 {
  pools::MeanOfValues<uint16_t, float> mean;
  BITGRAD_HD void operator()(int64_t i) const { mean(i); }
};
struct AvgPoolFp64 {
  pools::MeanOfValues<double, double> mean;
  BITGRAD_HD void operator()(int64_t i) const { mean(i); }
};
struct AvgPoolGradient {
  pools::MeanGradient<float> gradient;
  BITGRAD_HD void operator()(int64_t i) const { gradient(i); }
};
struct AvgPoolGradientFp64 {
  pools::MeanGradient<double> gradient;
  BITGRAD_HD void operator()(int64_t i) const { gradient(i); }
};

}  // namespace bitgrad::maps
