// Linear scaling of rotary positions (all frequencies divided by a factor) as RopeOptions says it: no wavelength, which
// is at least 2 pi, is below `original` / `low`.
#pragma once

#include <string_view>

#include "bitgrad/ops/attention.h"

namespace bitgrad::interop {

inline constexpr std::string_view kLinearScaling = "linear";  // its name in the files of both formats

inline void scale_linear(RopeOptions& rope, double factor) {
  rope.factor = factor;
  if (factor != 1) rope.low = 1, rope.high = 4, rope.original = 1;
}
inline bool scales_linear(const RopeOptions& rope) {
  constexpr double kShortest = 6.28;  // below 2 pi
  return rope.factor != 1 && static_cast<double>(rope.original) < kShortest * rope.low;
}

}  // namespace bitgrad::interop
