// An image with its border, as floats. See first_layer.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "bitgrad/dtype/codec.h"
#include "kernels/conv/borders.h"

namespace bitgrad::kernels::conv {

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
