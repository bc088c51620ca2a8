// Codes of optimizer moments in 8 and 4 bits, which span decades: the expressions shared by the CPU loops and the
// kernels of other devices. docs/numerics.md section 6.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/kernels/quantize_rules.h"

namespace bitgrad::kernels::moment_codes {

#define BITGRAD_ELEMENT BITGRAD_HD static inline __attribute__((always_inline))

// The number of code q is (1 + q/2^bits, continued by powers of two) - 1: an fp32 whose mantissa has `kBits` bits, less
// 1. So codes near 0 are evenly spaced, and the others are 2^-bits of their number apart.
struct MeanCode {  // of magnitudes; the sign is separate
  using Byte = int8_t;
  static constexpr int kBits = 3;
  static constexpr int32_t kMost = 127;
  static constexpr float kLargest = 61439.0f;  // the number of kMost
};
struct MatrixCode {
  using Byte = int8_t;
  static constexpr int kBits = 5;
  static constexpr int32_t kMost = 127;
  static constexpr float kLargest = 14.75f;
};
struct RootCode {
  using Byte = uint8_t;
  static constexpr int kBits = 4;
  static constexpr int32_t kMost = 255;
  static constexpr float kLargest = 63487.0f;
};
struct MeanCode4 {  // the same in 4 bits, two to a byte
  using Byte = int8_t;
  static constexpr int kBits = 0;
  static constexpr int32_t kMost = 7;
  static constexpr float kLargest = 127.0f;
};
struct MatrixCode4 {
  using Byte = int8_t;
  static constexpr int kBits = 1;
  static constexpr int32_t kMost = 7;
  static constexpr float kLargest = 11.0f;
};
struct RootCode4 {
  using Byte = uint8_t;
  static constexpr int kBits = 1;
  static constexpr int32_t kMost = 15;
  static constexpr float kLargest = 191.0f;
};
// Calls f with the codes of 8 or 4 bits for these values.
template <typename F>
static inline void with_code(int bits, MomentValues values, F&& f) {
  const bool wide = bits == 8;
  switch (values) {
    case MomentValues::kMeans:
      return wide ? f(MeanCode{}) : f(MeanCode4{});
    case MomentValues::kMatrix:
      return wide ? f(MatrixCode{}) : f(MatrixCode4{});
    case MomentValues::kSquares:
      return wide ? f(RootCode{}) : f(RootCode4{});
  }
}
template <typename Code>
inline constexpr int kPerByte = Code::kMost > 15 ? 1 : 2;
// Codes of squares, of their roots, are those without signs.
template <typename Code>
inline constexpr bool kSquare = static_cast<typename Code::Byte>(-1) > 0;
inline constexpr int32_t kOne = 0x3F800000;  // bits of 1.0f

template <typename Code>
inline constexpr int kCut = 23 - Code::kBits;  // bits below a code
template <typename Code>
inline constexpr int32_t kHalfDraw = 1 << (kCut<Code> - 17);  // centers the 16 bits of a draw among those below a code

// An element has one random draw for the whole run, to which every step adds this part of 65536, close to the golden
// ratio. So roundings of successive steps are spread evenly, and their mean over steps is closer to the number.
inline constexpr uint32_t kTurn = 40503;
BITGRAD_ELEMENT uint16_t turn_of(const RandomStream& draws) {
  return static_cast<uint16_t>(kTurn * (draws.live != nullptr ? draws.step + *draws.live : draws.step));
}
BITGRAD_ELEMENT RandomStream at_rest(const RandomStream& draws) {
  return {draws.seed, draws.purpose, draws.id, 0, nullptr};
}

template <typename Code>
BITGRAD_ELEMENT float number_of(int32_t q) {
  return __builtin_bit_cast(float, (q << kCut<Code>)+kOne) - 1.0f;
}

// u >= 0, at most a few roundings above kLargest; NaN gives 0.
template <typename Code>
BITGRAD_ELEMENT int32_t code_of(float u, uint16_t draw) {
  const float number = u == u ? u : 0.0f;
  const int32_t parts = __builtin_bit_cast(int32_t, number + 1.0f) - (kOne - kHalfDraw<Code>);
  const int32_t q = (parts + (static_cast<int32_t>(draw) << (kCut<Code> - 16))) >> kCut<Code>;
  return q > Code::kMost ? Code::kMost : q;
}

// The moment of a code, with its sign.
template <typename Code>
BITGRAD_ELEMENT float moment_of(int32_t code, float scale) {
  const float size = scale * number_of<Code>(code < 0 ? -code : code);
  return kSquare<Code> ? size * size : code < 0 ? -size : size;
}

// Of two codes of 4 bits in a byte, that of an even element is in the low bits. Means are in two's complement.
BITGRAD_ELEMENT uint8_t pair_of(int32_t even, int32_t odd) {
  return static_cast<uint8_t>((even & 15) | ((odd & 15) << 4));
}
template <typename Byte>  // int8_t: of a mean
BITGRAD_ELEMENT int32_t half_of(uint8_t pair, int64_t element) {
  const int32_t half = element % 2 == 0 ? pair & 15 : pair >> 4;
  return static_cast<Byte>(-1) < 0 ? (half ^ 8) - 8 : half;
}

#undef BITGRAD_ELEMENT

}  // namespace bitgrad::kernels::moment_codes
