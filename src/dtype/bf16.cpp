// Conversions between IEEE 754 binary16 and binary32 in integer arithmetic: the same bits with and without F16C.
#include "bitgrad/dtype/bf16.h"

namespace bitgrad {

uint16_t fp16_from_float(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((a >> 13) & 0x1FFu));  // quiet, top payload bits
  if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);                        // 65536 and above
  if (a >= 0x38800000u) {
    // Normal range: rebiasing and rounding may carry into the exponent, up to Inf, which is correct.
    const uint32_t rebiased = a - 0x38000000u;
    return static_cast<uint16_t>(sign | ((rebiased + 0xFFFu + ((rebiased >> 13) & 1u)) >> 13));
  }
  if (a <= 0x33000000u) return static_cast<uint16_t>(sign);  // <= 2^-25, half the smallest subnormal; ties to even
  const uint32_t shift = 126u - (a >> 23);                   // 14 .. 24
  const uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
  const uint32_t half = (1u << (shift - 1)) - 1u + ((mantissa >> shift) & 1u);
  return static_cast<uint16_t>(sign | ((mantissa + half) >> shift));
}

float fp16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1Fu) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace bitgrad
