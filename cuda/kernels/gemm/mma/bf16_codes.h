// Converts packed codes to pairs of bf16, and fp32 values to bf16 parts: the operands of products of floats and codes.
#pragma once

#include <cstdint>

#include "cuda/device/mma.h"
#include "cuda/kernels/gemm/unpack.h"

namespace bitgrad::cuda::gemm {

// A field f of at most 7 bits becomes times * (128 + ((f << shift) ^ flip)) + minus: 128 + f is a bf16 whose low byte
// is f. Of 8 bits, the low seven are converted like this, and the top bit selects the addend: -128, or the bit pattern
// of -128 plus 2^7 * top (giving -256 for signed codes, 0 for unsigned ones). All of this is exact.
inline constexpr uint32_t kBf16One = 0x3F803F80u, kMinus128 = 0xC300C300u;  // pairs
struct Bf16Rule {
  uint32_t flip, times, minus, top;
  int shift;
};
BITGRAD_HD constexpr Bf16Rule bf16_rule(int bits, NumberForm form) {
  if (form == NumberForm::kSign) return {0, 0x3D003D00u, 0xC0A0C0A0u, 0, 6};  // (128 + 64 f) / 32 - 5
  if (bits == 8) return {0, kBf16One, kMinus128, form == NumberForm::kSigned ? 1u : 0u - 0x186u, 0};
  if (form == NumberForm::kUnsigned) return {0, kBf16One, kMinus128, 0, 0};
  return {0x01010101u << (bits - 1), kBf16One, kMinus128 + (0x00010001u << (bits - 1)), 0, 0};
}

#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

// Prepares fields in bytes (fields4) for pair_of.
template <int kBits>
BITGRAD_DEVICE inline uint32_t prepared(uint32_t fields, const Bf16Rule& rule) {
  if constexpr (kBits == 8) return fields;
  if constexpr (kBits == 1) return fields << rule.shift;
  return fields ^ rule.flip;
}
// Converts two of four prepared fields: bytes 0 and 1 for kPair 0, bytes 2 and 3 for kPair 1.
template <int kBits, int kPair>
BITGRAD_DEVICE inline uint32_t pair_of(uint32_t bytes, const Bf16Rule& rule) {
  constexpr uint32_t kSelect = kPair == 0 ? 0x4140u : 0x4342u;
  const uint32_t times = kBits == 1 ? rule.times : kBf16One;  // constant, saves a register
  if constexpr (kBits < 8) {
    return mma::multiply_add_bf16(__byte_perm(bytes, 0x43434343u, kSelect), times, rule.minus);
  } else {
    const uint32_t w = __byte_perm(bytes, 0, kSelect);
    return mma::multiply_add_bf16((w & 0x007F007Fu) | 0x43004300u, times, (w & 0x00800080u) * rule.top + kMinus128);
  }
}

// x = parts[0] + parts[1] + parts[2], each with eight significant bits in its upper half. Exact for finite x, except
// for bits below 2^-133. For Inf or NaN at least one part is NaN.
BITGRAD_DEVICE inline void split_float(float x, uint32_t (&parts)[3]) {
  parts[0] = __float_as_uint(x) & 0xFFFF0000u;
  const float rest = x - __uint_as_float(parts[0]);
  parts[1] = __float_as_uint(rest) & 0xFFFF0000u;
  parts[2] = __float_as_uint(rest - __uint_as_float(parts[1]));
}
// The upper halves of two words.
BITGRAD_DEVICE inline uint32_t upper_halves(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x7632);
}
BITGRAD_DEVICE inline uint32_t lower_halves(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x5410);
}

#endif

}  // namespace bitgrad::cuda::gemm
