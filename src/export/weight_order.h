// The codes of a weight, and the orders in which files of other programs store them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bitgrad/ops/spatial.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// Codes of a weight [o, k], row by row; of a codebook its indices.
std::vector<int64_t> codes_of(const Tensor& weight);
// From [o, k] with k = taps, channels to the order of other programs: [o, channels, taps] for convolutions, else
// [k, o].
template <typename T>
std::vector<T> reordered(const std::vector<T>& x, int64_t o, int64_t k, const std::optional<Conv2dOptions>& conv) {
  std::vector<T> out(x.size());
  const int64_t taps = conv ? conv->kernel[0] * conv->kernel[1] : 1, c = k / taps;
  for (int64_t r = 0; r < o; ++r)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t i = 0; i < c; ++i) {
        const int64_t from = r * k + t * c + i, to = conv ? (r * c + i) * taps + t : (t * c + i) * o + r;
        out[static_cast<size_t>(to)] = x[static_cast<size_t>(from)];
      }
  return out;
}

}  // namespace bitgrad
