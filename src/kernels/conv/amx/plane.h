// An image with its border in one plane, and checks shared by both kinds of direct convolution. See direct.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "bitgrad/dtype/codec.h"
#include "kernels/conv/amx/direct.h"

namespace bitgrad::kernels::conv {

inline constexpr int64_t kStepBytes = 64, kBlockRows = 32;
constexpr int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The plane of an h x w image: `width` pixels per line, so that everything read from a line lies within it.
struct Plane {
  int64_t h = 0, w = 0;       // of the image
  int64_t top = 0, left = 0;  // of its border
  int64_t width = 0, height = 0;
  int64_t positions() const { return width * height; }
};

// Whether windows are equally spaced in both directions.
inline bool is_direct(const WindowGeometry& g) {
  return g.stride_y == g.stride_x && g.stride_y >= 1 && g.dilation_y == 1 && g.dilation_x == 1 && g.top >= 0 &&
         g.left >= 0 && g.windows() > 0;
}
// The plane of the image that windows read: window (y, x) begins at pixel stride * (y * width + x).
inline Plane image_plane(const WindowGeometry& g) {
  return {g.h,
          g.w,
          g.top,
          g.left,
          std::max(g.stride_x * (g.ow - 1) + g.kw, g.left + g.w),
          std::max(g.stride_y * (g.oh - 1) + g.kh, g.top + g.h)};
}
// Number of positions up to the last window of a plane.
inline int64_t window_positions(const WindowGeometry& g, const Plane& plane) { return (g.oh - 1) * plane.width + g.ow; }

// Fills the part of a plane that the image does not cover.
template <typename T>
void put_border(const Plane& plane, int64_t channels, int value, T* out) {
  T* from = out;
  for (int64_t y = 0; y <= plane.h; ++y) {
    const int64_t at = y < plane.h ? (y + plane.top) * plane.width + plane.left : plane.positions();
    T* const to = out + at * channels;
    std::memset(from, value, static_cast<size_t>(to - from) * sizeof(T));
    from = to + plane.w * channels;
  }
}

// Whether codes multiply as bytes.
inline bool is_bytes(DType dtype) {
  return dtype.is_code() && dtype.kind() != DTypeKind::kCodebook && dtype.kind() != DTypeKind::kFloat;
}
inline bool is_unsigned(DType dtype) { return dtype.kind() == DTypeKind::kUint && dtype.bits() == 8; }
// The largest absolute value of a dtype.
inline double magnitude_of(DType dtype) {
  return std::max(-static_cast<double>(dtype.info().qmin), static_cast<double>(dtype.info().qmax));
}

// Unpacks rows of codes to bytes: uint8 unchanged, all others signed.
inline void open_codes(DType dtype, const void* row, int64_t n, int8_t* out) {
  is_unsigned(dtype) ? unpack_row_raw(dtype, row, 0, n, reinterpret_cast<uint8_t*>(out))
                     : unpack_row_s8(dtype, row, 0, n, out);
}

// The bytes of eight 1-bit codes.
struct BitBytes {
  explicit BitBytes(DType dtype) {
    int shift = 0;
    const int8_t* const values = code_values_s8(dtype, &shift);
    for (int word = 0; word < 256; ++word)
      for (int i = 0; i < 8; ++i) bytes[word][i] = values[word >> i & 1];
  }
  int8_t bytes[256][8];
};

// Unpacks pixels that are not contiguous.
inline void open_pixels(DType dtype, const char* from, int64_t stride, int64_t pixels, int64_t channels, int8_t* to) {
  if (dtype.bits() == 8) {
    for (int64_t x = 0; x < pixels; ++x, from += stride)
      for (int64_t i = 0; i < channels; ++i) *to++ = static_cast<int8_t>(from[i]);
  } else if (dtype.bits() == 1 && channels % 8 == 0) {
    static const BitBytes signs(dtypes::bint1), bits(dtypes::int1);
    const BitBytes& table = dtype.kind() == DTypeKind::kSign ? signs : bits;
    for (int64_t x = 0; x < pixels; ++x, from += stride)
      for (int64_t i = 0; i < channels; i += 8, to += 8)
        std::memcpy(to, table.bytes[static_cast<uint8_t>(from[i / 8])], 8);
  } else {
    for (int64_t x = 0; x < pixels; ++x) open_codes(dtype, from + x * stride, channels, to + x * channels);
  }
}

// Unpacks the image to bytes: [height][width][channels].
inline void open_plane(const Plane& plane, DType dtype, const char* image, int64_t stride, int64_t channels, int pad,
                       int8_t* out) {
  put_border(plane, channels, pad, out);
  const bool dense = stride * 8 == channels * dtype.bits();
  for (int64_t y = 0; y < plane.h; ++y) {
    int8_t* const to = out + ((y + plane.top) * plane.width + plane.left) * channels;
    const char* const from = image + y * plane.w * stride;
    dense ? open_codes(dtype, from, plane.w * channels, to) : open_pixels(dtype, from, stride, plane.w, channels, to);
  }
}

}  // namespace bitgrad::kernels::conv
