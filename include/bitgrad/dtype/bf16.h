// 16-bit floats as bit patterns. Conversions round to nearest even and preserve NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "bitgrad/base/device.h"

namespace bitgrad {

BITGRAD_HD inline uint16_t bf16_from_float(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // quiet NaN, sign preserved
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
BITGRAD_HD inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

// Stochastic rounding: adds r16 to the bits and truncates; Inf and NaN are unaffected. docs/numerics.md section 7.
BITGRAD_HD inline uint16_t bf16_from_float_stochastic(float x, uint16_t r16) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7F800000u) == 0x7F800000u) return bf16_from_float(x);
  return static_cast<uint16_t>((u + r16) >> 16);
}

uint16_t fp16_from_float(float x);
float fp16_to_float(uint16_t h);

}  // namespace bitgrad
