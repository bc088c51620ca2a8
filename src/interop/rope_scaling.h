// Scaling of rotary positions as files say it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bitgrad/ops/attention.h"

namespace bitgrad::interop {

inline constexpr std::string_view kLinearScaling = "linear";  // its name in the files of both formats

// Linear scaling (all frequencies divided by a factor) as RopeOptions says it: no wavelength, which is at least 2 pi,
// is below `original` / `low`.
inline void scale_linear(RopeOptions& rope, double factor) {
  rope.factor = factor;
  if (factor != 1) rope.low = 1, rope.high = 4, rope.original = 1;
}
inline bool scales_linear(const RopeOptions& rope) {
  constexpr double kShortest = 6.28;  // below 2 pi
  return rope.factor != 1 && static_cast<double>(rope.original) < kShortest * rope.low;
}

inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";  // GGUF: what each frequency is divided by
// Those of Llama 3.1's scaling (ggml-org/llama.cpp, convert_hf_to_gguf.py), one for each pair of a head.
std::vector<float> rope_factors(const RopeOptions& rope);
// The inverse: sets factor, low, high and original of `rope`, whose dim and base are those of the file. False if no
// scaling of this kind has these factors.
bool read_rope_factors(std::span<const float> factors, RopeOptions& rope);

}  // namespace bitgrad::interop
