// Convolutions with few channels (the first ones of a network) without gathered rows, in vectors of 16 outputs. An
// image and its border are stored in a plane of floats, in which the taps of a line of a window are contiguous.
// Forward: fma chains over ascending taps from +0. gw: chains over ascending windows, one per block of images; the
// blocks are added in ascending order. Codes of 8 bits with weights of few bits are exact, because all sums are below
// 2^24.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bitgrad/dtype/codec.h"
#include "kernels/conv.h"
#include "kernels/conv/taps.h"

namespace bitgrad::kernels::conv {

inline constexpr int64_t kFewLanes = 16;

// A row of windows, for at most 16 outputs.
struct FewRow {
  const float* const* lines;  // per line of taps (`taps` of them): the first window
  int64_t taps, run;          // values per line of taps
  const float* weights;       // [taps][run][16]
  int64_t pixel;              // floats between windows
  int64_t windows, outputs;
  void* c;
  int64_t ldc;
  bool integers;              // C is int32
  const float *scale, *bias;  // [16]; bias may be null
};

// Sums of gw for at most 16 outputs over rows of windows.
struct FewWeights {
  int64_t lines, run;        // lines of taps, and values of each
  const float* x;            // at the first window
  int64_t line, row, pixel;  // floats between lines of taps, rows of windows, windows
  int64_t rows, windows;
  const float* gy;
  int64_t gy_row, gy_window, outputs;
  const float* fold;  // may be null
  bool bf16;          // round gy to bf16, after folding
  float* sums;        // [line][..][16]
  int64_t sums_line;  // floats
};

struct FewIsa {
  void (*row)(const FewRow& row);
  bool (*has_weights)(int64_t lines, int64_t run);
  void (*weights)(const FewWeights& call);
};
// Requires isa::kAvx512.
const FewIsa& few_machine();

// conv_direct and conv_weights_direct for few channels. pays: they are supported and few.
bool conv_few(const DirectConvArgs& args, const FewIsa& isa);
bool conv_few_pays(const DirectConvArgs& args, const FewIsa& isa);
bool conv_weights_few(const DirectWeightsArgs& args, const FewIsa& isa);
bool conv_weights_few_pays(const DirectWeightsArgs& args, const FewIsa& isa);

// An image with its border, as floats. See first_layer.h.

// Creates planes [height][width][channels] from images.
struct FewPlane {
  FewPlane(const WindowGeometry& geometry, int64_t channels, DType dtype, int64_t stride, int pad)
      : g(geometry),
        channels(channels),
        dtype(dtype),
        stride(stride),
        pad(pad),
        width(std::max(g.stride_x * (g.ow - 1) + g.kw, g.left + g.w)),
        height(std::max(g.stride_y * (g.oh - 1) + g.kh, g.top + g.h)) {}
  static bool is_whole(DType dtype) {
    return dtype.is_code() && dtype.kind() != DTypeKind::kCodebook && dtype.kind() != DTypeKind::kFloat;
  }
  static bool opens(DType dtype) { return dtype == dtypes::fp32 || (is_whole(dtype) && dtype.bits() == 8); }
  static double magnitude(DType dtype) {
    return std::max(-static_cast<double>(dtype.info().qmin), static_cast<double>(dtype.info().qmax));
  }
  int64_t line() const { return width * channels; }
  int64_t floats() const { return height * line(); }

  void open(const void* images, int64_t image, float* out) const {
    std::fill(out, out + floats(), static_cast<float>(pad));
    const char* from = static_cast<const char*>(images) + image * g.pixels() * stride;
    for (int64_t y = 0; y < g.h; ++y) {
      float* to = out + (y + g.top) * line() + g.left * channels;
      for (int64_t x = 0; x < g.w; ++x, from += stride, to += channels) pixel(from, to);
    }
  }

  const WindowGeometry& g;
  const int64_t channels;
  const DType dtype;
  const int64_t stride;
  const int pad;
  const int64_t width, height;

 private:
  void pixel(const char* from, float* to) const {
    if (dtype == dtypes::fp32) {
      for (int64_t i = 0; i < channels; ++i) std::memcpy(to + i, from + i * 4, 4);
    } else if (dtype.kind() == DTypeKind::kUint) {
      for (int64_t i = 0; i < channels; ++i) to[i] = static_cast<float>(static_cast<uint8_t>(from[i]));
    } else {
      for (int64_t i = 0; i < channels; ++i) to[i] = static_cast<float>(static_cast<int8_t>(from[i]));
    }
  }
};

}  // namespace bitgrad::kernels::conv
