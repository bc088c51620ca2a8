// Family pointwise on devices: the functions and copies of kernels/pointwise.h. One call handles a few
// neighbouring elements of the inner axis.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "kernels/map/list.h"
#include "kernels/pointwise/walk.h"

namespace bitgrad::maps {

// Locates the elements of up to three arrays. Index: outer index * pieces() + the piece of kRun inner elements.
struct StridedPlaces {
  static constexpr int64_t kRun = 4;
  int64_t size[kernels::kPointwiseAxes];
  int64_t step[3][kernels::kPointwiseAxes];

  BITGRAD_HD int64_t pieces() const { return (size[3] + kRun - 1) / kRun; }
  BITGRAD_HD int64_t runs() const { return size[0] * size[1] * size[2] * pieces(); }
  // i = quotient * n + rest. Avoids 64-bit division, which costs some hundred instructions on a GPU.
  BITGRAD_HD static int64_t divided(int64_t i, int64_t n, int64_t& rest) {
    if (((i | n) >> 32) == 0) {
      const uint32_t q = static_cast<uint32_t>(i) / static_cast<uint32_t>(n);
      rest = i - int64_t{q} * n;
      return q;
    }
    const int64_t q = i / n;
    rest = i - q * n;
    return q;
  }
  // Elements [begin, end) of the inner axis, and where that axis begins in each array.
  struct Run {
    int64_t start[3], begin, end;
  };
  BITGRAD_HD Run run(int64_t i) const {
    int64_t piece = 0, i1 = 0, i2 = 0;
    const int64_t r = divided(i, pieces(), piece), q = divided(r, size[2], i2), i0 = divided(q, size[1], i1);
    Run out;
    for (int k = 0; k < 3; ++k) out.start[k] = i0 * step[k][0] + i1 * step[k][1] + i2 * step[k][2];
    out.begin = piece * kRun;
    out.end = out.begin + kRun < size[3] ? out.begin + kRun : size[3];
    return out;
  }
};

template <int kArrays>
StridedPlaces places_of(const kernels::Walk<kArrays>& walk) {
  StridedPlaces places = {};
  for (int axis = 0; axis < kernels::kPointwiseAxes; ++axis) {
    places.size[axis] = walk.size[axis];
    for (int k = 0; k < kArrays; ++k) places.step[k][axis] = walk.step[k][axis];
  }
  return places;
}

BITGRAD_HD inline float load_float(const void* data, bool bf16, int64_t i) {
  return bf16 ? bf16_to_float(static_cast<const uint16_t*>(data)[i]) : static_cast<const float*>(data)[i];
}
BITGRAD_HD inline void store_float(void* data, bool bf16, int64_t i, float value) {
  if (bf16)
    static_cast<uint16_t*>(data)[i] = bf16_from_float(value);
  else
    static_cast<float*>(data)[i] = value;
}

// y = f(a, b).
struct PointwiseRuns {
  kernels::PointwiseOp op;
  StridedPlaces places;
  const void *a, *b;
  void* y;
  bool bf16_a, bf16_b, bf16_y;

  BITGRAD_HD static float value(kernels::PointwiseOp op, float a, float b) {
    switch (op) {
#define BITGRAD_POINTWISE(name, value) \
  case kernels::PointwiseOp::name:     \
    return value;
#include "kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
      case kernels::PointwiseOp::kCount:
        break;
    }
    return a;
  }
  BITGRAD_HD void operator()(int64_t index) const {
    const StridedPlaces::Run run = places.run(index);
    for (int64_t i = run.begin; i < run.end; ++i)
      store_float(y, bf16_y, run.start[2] + i * places.step[2][3],
                  value(op, load_float(a, bf16_a, run.start[0] + i * places.step[0][3]),
                        load_float(b, bf16_b, run.start[1] + i * places.step[1][3])));
  }
};

// y = x.
struct CopyRuns {
  enum Conversion : uint8_t { kBits, kToBf16, kFromBf16 };
  StridedPlaces places;
  const void* x;
  void* y;
  int bytes;  // per element of y
  Conversion conversion;

  BITGRAD_HD void copy(int64_t to, int64_t from) const {
    if (conversion != kBits)
      return store_float(y, conversion == kToBf16, to, load_float(x, conversion == kFromBf16, from));
    if (bytes == 1) static_cast<uint8_t*>(y)[to] = static_cast<const uint8_t*>(x)[from];
    if (bytes == 2) static_cast<uint16_t*>(y)[to] = static_cast<const uint16_t*>(x)[from];
    if (bytes == 4) static_cast<uint32_t*>(y)[to] = static_cast<const uint32_t*>(x)[from];
    if (bytes == 8) static_cast<uint64_t*>(y)[to] = static_cast<const uint64_t*>(x)[from];
  }
  BITGRAD_HD void operator()(int64_t index) const {
    const StridedPlaces::Run run = places.run(index);
    for (int64_t i = run.begin; i < run.end; ++i)
      copy(run.start[1] + i * places.step[1][3], run.start[0] + i * places.step[0][3]);
  }
};

}  // namespace bitgrad::maps
