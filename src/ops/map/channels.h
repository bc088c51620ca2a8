// Functions with one learned value per channel. docs/numerics.md section 10, "Images".
#pragma once

#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// y = x > 0 ? x : slope[c] * x. Index: row.
struct PreluValues {
  const void* x;
  bool bf16;
  int64_t cols;
  const float* slope;
  void* y;

  BITGRAD_HD void operator()(int64_t row) const {
    for (int64_t c = 0; c < cols; ++c) {
      const float v = load_float(x, bf16, row * cols + c), below = v * slope[c];
      store_float(y, bf16, row * cols + c, v > 0.0f ? v : below);
    }
  }
};

// gx = x > 0 ? gy : slope[c] * gy, and the terms of the gradient of slope: x > 0 ? 0 : gy * x. nullptr if not wanted.
// Index: row.
struct PreluGradient {
  const void* x;
  bool bf16;
  int64_t cols;
  const float *slope, *gy;
  float *gx, *terms;

  BITGRAD_HD void operator()(int64_t row) const {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = row * cols + c;
      const float v = load_float(x, bf16, i), g = gy[i], below = g * slope[c], term = g * v;
      if (gx != nullptr) gx[i] = v > 0.0f ? g : below;
      if (terms != nullptr) terms[i] = v > 0.0f ? 0.0f : term;
    }
  }
};

}  // namespace bitgrad::maps
