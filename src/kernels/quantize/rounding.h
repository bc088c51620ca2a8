// Rounds one value to its code: the expressions shared by the CPU loops and the kernels of other devices.
// docs/numerics.md sections 2 and 7.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"

namespace bitgrad::kernels::quantize_loops {

// Forced inline into the loops of every ISA, so that none of it is emitted as a separate function.
#define BITGRAD_ELEMENT BITGRAD_HD static inline __attribute__((always_inline))

// Unclamped codes and zero points are kept within +-(2^30 - 64), the largest float below 2^30. 2^30 + 2^30 would
// overflow int32 and make the sum negative.
inline constexpr float kSafe = 0x1p30f - 64.0f;
inline constexpr int32_t kSafeInt = (1 << 30) - 64;

// rint to nearest even: for abs x < 2^23 by an addition that drops the fraction; larger values are already integers.
// NaN becomes 0.
BITGRAD_ELEMENT float rint_or_zero(float u) {
  const float a = u < 0.0f ? -u : u;
  const float r = a < 0x1p23f ? (a + 0x1p23f) - 0x1p23f : a;
  const float s = u < 0.0f ? -r : r;
  return u == u ? s : 0.0f;
}

BITGRAD_ELEMENT int32_t clamp_int(int32_t q, int32_t lo, int32_t hi) {
  const int32_t low = q < lo ? lo : q;
  return low > hi ? hi : low;
}

BITGRAD_ELEMENT float clamp_float(float v, float lo, float hi) {
  const float low = v < lo ? lo : v;
  return low > hi ? hi : low;
}

BITGRAD_ELEMENT int32_t safe_zero(int32_t zero) { return clamp_int(zero, -kSafeInt, kSafeInt); }

// The code before it is clamped to [lo, hi]; zero comes from safe_zero.
BITGRAD_ELEMENT int32_t nearest_code(float u, int32_t zero) {
  return static_cast<int32_t>(clamp_float(rint_or_zero(u), -kSafe, kSafe)) + zero;
}

// The parts of a code that stochastic rounding distinguishes: 2^(16 - shift). Within the clamp, the last bit of a
// number plus `grid` is worth one part.
struct CodeParts {
  float grid = 0x1.8p7f;
  int32_t shift = 0;
};
BITGRAD_ELEMENT CodeParts int8_parts() { return {0x1.8p10f, 3}; }

// Of codes in [lo, hi]: parts that are several times as large as the rounding errors of the largest number, so that the
// value of a code stays that code, at most 65536.
constexpr CodeParts code_parts(int32_t lo, int32_t hi) {
  const int64_t largest = lo < 0 ? -static_cast<int64_t>(lo) : lo, span = static_cast<int64_t>(hi) - lo;
  int32_t shift = -5;
  for (int64_t rest = largest > span ? largest : span; rest > 0; rest /= 2) ++shift;
  CodeParts parts;
  for (; parts.shift < shift; ++parts.shift) parts.grid *= 2;
  return parts;
}

BITGRAD_ELEMENT int32_t code_by_draw(float v, const CodeParts& parts, uint16_t draw) {
  const int32_t count = __builtin_bit_cast(int32_t, v + parts.grid) - __builtin_bit_cast(int32_t, parts.grid);
  return ((count << parts.shift) + static_cast<int32_t>(draw)) >> 16;
}

// The same with a 16-bit draw; low = lo - 1, high = hi + 1.
BITGRAD_ELEMENT int32_t stochastic_code(float u, float zero, float low, float high, const CodeParts& parts,
                                        uint16_t draw) {
  const float number = u == u ? u : 0.0f;
  return code_by_draw(clamp_float(number + zero, low, high), parts, draw);
}

// The absmax code of a finite value: u is within a few roundings of [-127, 127], so no clamp is needed before the draw
// is added.
BITGRAD_ELEMENT int32_t int8_code(float u, bool stochastic, uint16_t draw) {
  return clamp_int(stochastic ? code_by_draw(u, int8_parts(), draw) : static_cast<int32_t>(rint_or_zero(u)), -127, 127);
}

BITGRAD_ELEMENT bool is_finite_number(float x) {
  return (__builtin_bit_cast(uint32_t, x) & 0x7F800000u) != 0x7F800000u;
}

#undef BITGRAD_ELEMENT

}  // namespace bitgrad::kernels::quantize_loops
