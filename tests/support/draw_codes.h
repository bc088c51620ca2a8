// Stochastic rounding to codes (docs/numerics.md section 7), and the codes of moments (section 6), in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "bitgrad/base/rng.h"
#include "bitgrad/kernels/quantize_rules.h"

namespace bitgrad::test {

// The code of v before it is clamped to [lo, hi].
inline int64_t code_by_draw(double v, double lo, double hi, double draw) {
  const double b = std::floor(std::log2(std::max(std::abs(lo), hi - lo))) + 1;
  const double parts = std::exp2(std::min(16.0, 21 - b));
  const double i = std::nearbyint(std::clamp(v, lo - 1, hi + 1) * parts) * (65536 / parts);
  return static_cast<int64_t>(std::floor((i + draw) / 65536));
}

// Codes q of moments in 8 or 4 bits, 0 <= q <= most: of means, values of a matrix, or roots of squares.
struct MomentForm {
  int b, most;
};
inline MomentForm moment_form(int bits, MomentValues values) {
  const bool wide = bits == 8;
  if (values == MomentValues::kSquares) return wide ? MomentForm{4, 255} : MomentForm{1, 15};
  if (values == MomentValues::kMatrix) return wide ? MomentForm{5, 127} : MomentForm{1, 7};
  return wide ? MomentForm{3, 127} : MomentForm{0, 7};
}
// The code of element i, with its sign, of those that are stored in `bytes`.
inline int moment_stored(const uint8_t* bytes, size_t i, int bits, MomentValues values) {
  const int raw = bits == 8 ? bytes[i] : i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
  return values == MomentValues::kSquares || raw < 1 << (bits - 1) ? raw : raw - (1 << bits);
}
// The number of code q >= 0, and the code of u >= 0.
inline double moment_number(int q, const MomentForm& form) {
  const int parts = 1 << form.b;
  return (1 + static_cast<double>(q % parts) / parts) * std::exp2(q / parts) - 1;
}
inline double moment_draw(RandomStream draws, uint64_t element) {
  const uint32_t turn = 40503 * std::exchange(draws.step, 0u);
  return (draws.bits16(element) + turn) % 65536;
}
inline int moment_code(float u, const MomentForm& form, double draw) {
  const double w = u + 1.0f, e = std::floor(std::log2(w));
  const double place = (e + w / std::exp2(e) - 1) * (1 << form.b);
  return std::min(static_cast<int>(std::floor(place + (draw + 0.5) / 65536)), form.most);
}

}  // namespace bitgrad::test
