// Samples of a batch out of a data set that lies on the device as it is stored (StoredSamples, data/dataset.h).
#pragma once

#include "kernels/map/map.h"

namespace bitgrad::maps {

// x[r, c] = numbers[code], or tokens[r, c] = code, of code = codes[ids[r] * stride + c]. Index: r * pieces() + the
// piece of kCodes codes.
struct GatherSamples {
  static constexpr int64_t kCodes = 4;
  const uint8_t* codes;
  const int64_t* ids;    // of samples that there are
  const float* numbers;  // [256], or nullptr
  float* x;              // [rows, features], where there are numbers
  int32_t* tokens;       // else these
  int64_t features, stride;

  BITGRAD_HD int64_t pieces() const { return (features + kCodes - 1) / kCodes; }
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = i / pieces(), begin = (i - r * pieces()) * kCodes;
    const int64_t end = begin + kCodes < features ? begin + kCodes : features;
    const uint8_t* const from = codes + ids[r] * stride;
    for (int64_t c = begin; c < end; ++c) {
      if (numbers != nullptr)
        x[r * features + c] = numbers[from[c]];
      else
        tokens[r * features + c] = from[c];
    }
  }
};

}  // namespace bitgrad::maps
