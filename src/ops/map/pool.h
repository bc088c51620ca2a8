// Pooling of images [n,h,w,c]: computes a result from the pixels of its window, or an element of a gradient from the
// windows of its pixel, one run of channels at a time. docs/numerics.md section 10, "Images".
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/conv.h"
#include "ops/map/list.h"

namespace bitgrad::maps {
namespace pools {

constexpr int64_t kRun = 64;  // most channels per run; runs of packed codes always have this many

// Pixels [y0, y1) x [x0, x1) of image `image`: the part of a window that lies inside. tap: of the first of them.
struct Window {
  int64_t image, y0, y1, x0, x1, tap;
};

// The windows of one geometry, and their results [n,oh,ow,c]. Index: result pixel * runs() + run of channels.
struct Windows {
  kernels::WindowGeometry g;  // dilation 1
  int64_t c, run;

  BITGRAD_HD int64_t runs() const { return (c + run - 1) / run; }
  BITGRAD_HD int64_t first(int64_t i) const { return i % runs() * run; }
  BITGRAD_HD int64_t count(int64_t first) const { return c - first < run ? c - first : run; }
  BITGRAD_HD Window window(int64_t pixel) const {
    const int64_t image = pixel / (g.oh * g.ow), at = pixel - image * (g.oh * g.ow), oy = at / g.ow;
    const int64_t y = oy * g.stride_y - g.top, x = (at - oy * g.ow) * g.stride_x - g.left;
    Window out;
    out.image = image;
    out.y0 = y > 0 ? y : 0;
    out.x0 = x > 0 ? x : 0;
    out.y1 = y + g.kh < g.h ? y + g.kh : g.h;
    out.x1 = x + g.kw < g.w ? x + g.kw : g.w;
    out.tap = (out.y0 - y) * g.kw + (out.x0 - x);
    return out;
  }
  // Calls f(pixel of the image, tap) for the pixels of a window that lie inside, in row-major order.
  template <typename F>
  BITGRAD_HD void each(const Window& w, F&& f) const {
    for (int64_t y = w.y0, row = w.tap; y < w.y1; ++y, row += g.kw) {
      const int64_t from = (w.image * g.h + y) * g.w - w.x0;
      for (int64_t x = w.x0; x < w.x1; ++x) f(from + w.x0 + x, row + x - w.x0);
    }
  }
  // Calls f(result pixel, tap) for the windows that contain a pixel of an image, in ascending order.
  template <typename F>
  BITGRAD_HD void covering(int64_t pixel, F&& f) const {
    const int64_t image = pixel / (g.h * g.w), at = pixel - image * (g.h * g.w), py = at / g.w;
    const int64_t y = py + g.top, x = at - py * g.w + g.left;
    const int64_t y0 = y < g.kh ? 0 : (y - g.kh) / g.stride_y + 1, x0 = x < g.kw ? 0 : (x - g.kw) / g.stride_x + 1;
    for (int64_t oy = y0; oy < g.oh && oy * g.stride_y <= y; ++oy)
      for (int64_t ox = x0; ox < g.ow && ox * g.stride_x <= x; ++ox)
        f((image * g.oh + oy) * g.ow + ox, (y - oy * g.stride_y) * g.kw + (x - ox * g.stride_x));
  }
};

BITGRAD_HD inline float load(const float* x) { return *x; }
BITGRAD_HD inline double load(const double* x) { return *x; }
BITGRAD_HD inline float load(const uint16_t* x) { return bf16_to_float(*x); }
BITGRAD_HD inline void store(float* y, float v) { *y = v; }
BITGRAD_HD inline void store(double* y, double v) { *y = v; }
BITGRAD_HD inline void store(uint16_t* y, float v) { *y = bf16_from_float(v); }

// The taps at which the maxima were found: bytes, or 32 bits for windows of more than 256 taps.
struct Taps {
  void* at;  // nullptr if not wanted
  bool wide;
  template <typename T>
  BITGRAD_HD void put(int64_t first, int64_t count, const T* taps) const {
    if (at == nullptr) return;
    if (wide) {
      for (int64_t i = 0; i < count; ++i) static_cast<uint32_t*>(at)[first + i] = static_cast<uint32_t>(taps[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) static_cast<uint8_t*>(at)[first + i] = static_cast<uint8_t>(taps[i]);
    }
  }
};

// The first of the largest values of a window. NaN counts as larger than every number; among NaNs the last one wins (as
// in PyTorch).
template <typename T, typename Lane, typename Index>
struct MaxOfValues {
  Windows windows;
  const T* x;
  T* y;
  Taps taps;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    const Window window = windows.window(pixel);
    Lane best[kRun];
    Index at[kRun];
    windows.each(window, [&](int64_t from, int64_t tap) {
      const T* const values = x + from * windows.c + first;
      const Index here = static_cast<Index>(tap);
      if (tap == window.tap) {
        for (int64_t j = 0; j < count; ++j) {
          best[j] = load(values + j);
          at[j] = here;
        }
        return;
      }
      for (int64_t j = 0; j < count; ++j) {
        const Lane v = load(values + j);
        const bool takes = (v > best[j]) | (v != v);
        best[j] = takes ? v : best[j];
        at[j] = takes ? here : at[j];
      }
    });
    for (int64_t j = 0; j < count; ++j) store(y + pixel * windows.c + first + j, best[j]);
    taps.put(pixel * windows.c + first, count, at);
  }
};

// The codes of a run as bytes. Reads whole bytes of codes and writes up to 64 codes.
template <int kBits>
BITGRAD_HD inline void unpack_bytes(const uint8_t* from, int64_t count, uint8_t flip, uint8_t* codes) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kField = (1u << kBits) - 1u;
  for (int64_t i = 0; i < (count + kPerByte - 1) / kPerByte; ++i)
    for (int k = 0; k < kPerByte; ++k)
      codes[i * kPerByte + k] = static_cast<uint8_t>(((from[i] >> (k * kBits)) & kField) ^ flip);
}
BITGRAD_HD inline void unpack_run(const uint64_t* words, int bits, int64_t count, uint8_t flip, uint8_t* codes) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
  if (bits == 8) return unpack_bytes<8>(bytes, count, flip, codes);
  if (bits == 4) return unpack_bytes<4>(bytes, count, flip, codes);
  if (bits == 2) return unpack_bytes<2>(bytes, count, flip, codes);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t word = j * bits / 64, shift = j * bits % 64;
    uint64_t w = words[word] >> shift;
    if (shift + bits > 64) w |= words[word + 1] << (64 - shift);
    codes[j] = static_cast<uint8_t>((w & ((1u << bits) - 1u)) ^ flip);
  }
}
BITGRAD_HD inline void pack_run(const uint8_t* codes, int bits, int64_t count, uint8_t flip, uint64_t* words) {
  uint64_t packed = 0;
  int used = 0;
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t raw = codes[j] ^ flip;
    packed |= raw << used;
    used += bits;
    if (used < 64) continue;
    *words++ = packed;
    used -= 64;
    packed = used == 0 ? 0 : raw >> (bits - used);
  }
  if (used > 0) *words = packed;
}

// The same for codes of 2 to 8 bits whose raw bits, XORed with `flip`, are ordered like their values. Rows of words,
// runs of 64 codes.
template <typename Index>
struct MaxOfCodes {
  Windows windows;
  const uint64_t* x;
  uint64_t* y;
  int64_t words;  // words per pixel
  int bits;
  uint8_t flip;
  Taps taps;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    const int64_t word = first / 64 * bits;
    uint8_t best[kRun], codes[kRun];
    Index at[kRun];
    const Window window = windows.window(pixel);
    windows.each(window, [&](int64_t from, int64_t tap) {
      const Index here = static_cast<Index>(tap);
      const bool begins = tap == window.tap;
      unpack_run(x + from * words + word, bits, count, flip, begins ? best : codes);
      if (begins) {
        for (int64_t j = 0; j < count; ++j) at[j] = here;
        return;
      }
      for (int64_t j = 0; j < count; ++j) {
        at[j] = codes[j] > best[j] ? here : at[j];
        best[j] = codes[j] > best[j] ? codes[j] : best[j];
      }
    });
    pack_run(best, bits, count, flip, y + pixel * words + word);
    taps.put(pixel * windows.c + first, count, at);
  }
};

}  // namespace pools

struct MaxPoolValues {
  pools::MaxOfValues<float, float, int32_t> max;
  BITGRAD_HD void operator()(int64_t i) const { max(i); }
};
struct MaxPoolBf16 {
  pools::MaxOfValues<uint16_t, float, int32_t> max;
  BITGRAD_HD void operator()(int64_t i) const { max(i); }
};
struct MaxPoolFp64 {
  pools::MaxOfValues<double, double, int64_t> max;
  BITGRAD_HD void operator()(int64_t i) const { max(i); }
};

struct MaxPoolCodes {
  pools::MaxOfCodes<uint8_t> max;
  BITGRAD_HD void operator()(int64_t i) const { max(i); }
};
struct MaxPoolCodesWide {
  pools::MaxOfCodes<uint32_t> max;  // for windows of more than 256 taps
  BITGRAD_HD void operator()(int64_t i) const { max(i); }
};

// 1-bit codes: the OR of their words. Index: word of the result.
struct MaxPoolBits {
  pools::Windows windows;
  const uint64_t* x;
  uint64_t* y;
  int64_t words;  // words per pixel

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / words, word = i - pixel * words;
    uint64_t any = 0;
    windows.each(windows.window(pixel), [&](int64_t from, int64_t) { any |= x[from * words + word]; });
    y[i] = any;
  }
};

// The tap of the first set bit of each window, or of the first tap inside if none is set. Runs of 64 channels.
struct FirstSetTaps {
  pools::Windows windows;
  pools::Taps taps;
  const uint64_t* x;
  int64_t words;

  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    const pools::Window window = windows.window(pixel);
    uint32_t at[pools::kRun];
    for (int64_t j = 0; j < count; ++j) at[j] = static_cast<uint32_t>(window.tap);
    uint64_t open = ~uint64_t{0};
    windows.each(window, [&](int64_t from, int64_t tap) {
      const uint64_t word = x[from * words + first / 64];
      // Bits set here for the first time. Those of the first tap are already recorded.
      const uint64_t here = tap == window.tap ? 0 : word & open;
      open &= ~word;
      if (here == 0) return;
      for (int64_t j = 0; j < count; ++j) at[j] = (here >> j & 1) != 0 ? static_cast<uint32_t>(tap) : at[j];
    });
    taps.put(pixel * windows.c + first, count, at);
  }
};

namespace pools {

// gx = the sum, over windows in ascending order, of gy where this pixel was the maximum. Index: pixel of the images *
// runs() + run.
template <typename T>
struct MaxGradient {
  Windows windows;
  Taps taps;
  const T* gy;
  T* gx;

  template <typename Index>
  BITGRAD_HD void run(const Index* at, int64_t i) const {
    const int64_t pixel = i / windows.runs(), first = windows.first(i), count = windows.count(first);
    T* const out = gx + pixel * windows.c + first;
    for (int64_t j = 0; j < count; ++j) out[j] = T{0};
    windows.covering(pixel, [&](int64_t from, int64_t tap) {
      const Index here = static_cast<Index>(tap);
      const Index* const where = at + from * windows.c + first;
      const T* const g = gy + from * windows.c + first;
      for (int64_t j = 0; j < count; ++j) out[j] += where[j] == here ? g[j] : T{0};
    });
  }
  BITGRAD_HD void operator()(int64_t i) const {
    if (taps.wide)
      run(static_cast<const uint32_t*>(taps.at), i);
    else
      run(static_cast<const uint8_t*>(taps.at), i);
  }
};

}  // namespace pools

struct MaxPoolGradient {
  pools::MaxGradient<float> gradient;
  BITGRAD_HD void operator()(int64_t i) const { gradient(i); }
};
struct MaxPoolGradientFp64 {
  pools::MaxGradient<double> gradient;
  BITGRAD_HD void operator()(int64_t i) const { gradient(i); }
};

}  // namespace bitgrad::maps
