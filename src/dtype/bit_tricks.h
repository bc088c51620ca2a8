// Operations on words of bits: packing 8 codes of B bits to and from 8 bytes, and separating or interleaving even and
// odd bits. Plain C++, no tables. Source: Warren, "Hacker's Delight", 2nd ed., chapter 7 (compress, unshuffle).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace bitgrad::detail {

// The low `bits` bits of every `lane`-bit lane.
constexpr uint64_t lane_mask(int lane, int bits) {
  const uint64_t one = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  uint64_t mask = 0;
  for (int i = 0; i < 64; i += lane) mask |= one << i;
  return mask;
}

// 8 codes packed in the low 8 B bits -> one byte each. Higher bits of w are ignored.
template <int B>
constexpr uint64_t spread_codes(uint64_t w) {
  if constexpr (B < 8) {
    constexpr uint64_t kHalf = lane_mask(64, 4 * B), kQuarter = lane_mask(32, 2 * B), kOne = lane_mask(16, B);
    w = (w & kHalf) | (((w >> (4 * B)) & kHalf) << 32);
    w = (w & kQuarter) | (((w >> (2 * B)) & kQuarter) << 16);
    w = (w & kOne) | (((w >> B) & kOne) << 8);
  }
  return w;
}

// The low B bits of 8 bytes -> packed in the low 8 B bits.
template <int B>
constexpr uint64_t gather_codes(uint64_t w) {
  if constexpr (B < 8) {
    constexpr uint64_t kHalf = lane_mask(64, 4 * B), kQuarter = lane_mask(32, 2 * B), kOne = lane_mask(16, B);
    w = (w & kOne) | (((w >> 8) & kOne) << B);
    w = (w & kQuarter) | (((w >> 16) & kQuarter) << (2 * B));
    w = (w & kHalf) | (((w >> 32) & kHalf) << (4 * B));
  }
  return w;
}

// Even bits of w -> low half, odd bits -> high half.
constexpr uint64_t unshuffle(uint64_t w) {
  uint64_t t = (w ^ (w >> 1)) & 0x2222222222222222u;
  w ^= t ^ (t << 1);
  t = (w ^ (w >> 2)) & 0x0C0C0C0C0C0C0C0Cu;
  w ^= t ^ (t << 2);
  t = (w ^ (w >> 4)) & 0x00F000F000F000F0u;
  w ^= t ^ (t << 4);
  t = (w ^ (w >> 8)) & 0x0000FF000000FF00u;
  w ^= t ^ (t << 8);
  t = (w ^ (w >> 16)) & 0x00000000FFFF0000u;
  return w ^ t ^ (t << 16);
}

// The inverse of unshuffle.
constexpr uint64_t shuffle(uint64_t w) {
  uint64_t t = (w ^ (w >> 16)) & 0x00000000FFFF0000u;
  w ^= t ^ (t << 16);
  t = (w ^ (w >> 8)) & 0x0000FF000000FF00u;
  w ^= t ^ (t << 8);
  t = (w ^ (w >> 4)) & 0x00F000F000F000F0u;
  w ^= t ^ (t << 4);
  t = (w ^ (w >> 2)) & 0x0C0C0C0C0C0C0C0Cu;
  w ^= t ^ (t << 2);
  t = (w ^ (w >> 1)) & 0x2222222222222222u;
  return w ^ t ^ (t << 1);
}

// Transposes a square of 64 / B words of 64 / B fields of B bits: field c of word r becomes field r of word c. Swaps
// halves recursively. B divides 64.
template <int B, int J = 32 / B>
inline void transpose_fields(uint64_t* w) {
  constexpr int kShift = J * B;
  constexpr uint64_t kLow = lane_mask(2 * kShift, kShift);
  for (int base = 0; base < 64 / B; base += 2 * J) {
    for (int k = base; k < base + J; ++k) {
      const uint64_t t = ((w[k] >> kShift) ^ w[k + J]) & kLow;
      w[k] ^= t << kShift;
      w[k + J] ^= t;
    }
  }
  if constexpr (J > 1) transpose_fields<B, J / 2>(w);
}

// Calls f(std::integral_constant<int, bits>) for bits in 1 .. 8, so that the width is a compile-time constant in f.
template <typename F>
void with_width(int bits, F f) {
  switch (bits) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    case 4:
      return f(std::integral_constant<int, 4>{});
    case 5:
      return f(std::integral_constant<int, 5>{});
    case 6:
      return f(std::integral_constant<int, 6>{});
    case 7:
      return f(std::integral_constant<int, 7>{});
    default:
      return f(std::integral_constant<int, 8>{});
  }
}

// Little-endian word from the first min(bytes, 8) bytes at p; missing bytes are zero.
inline uint64_t load_bytes(const uint8_t* p, int64_t bytes) {
  uint64_t w = 0;
  std::memcpy(&w, p, static_cast<size_t>(bytes < 8 ? bytes : 8));
  return w;
}

// A mask of the low `bits` bits, bits >= 0; all ones for 64 and more.
constexpr uint64_t low_mask(int64_t bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

// Word k (64 bits) of a row of `bits` bits. Reads only bytes of the row and clears bits beyond its last one.
inline uint64_t load_row_word(const uint8_t* row, int64_t k, int64_t bits) {
  const int64_t left = bits - 64 * k;
  if (left >= 64) {
    uint64_t w;
    std::memcpy(&w, row + 8 * k, 8);
    return w;
  }
  return left <= 0 ? 0 : load_bytes(row + 8 * k, (left + 7) / 8) & low_mask(left);
}

// Writes word k of a row of `row_bytes` bytes; bytes beyond the end of the row are dropped.
inline void store_row_word(uint8_t* row, int64_t k, int64_t row_bytes, uint64_t w) {
  const int64_t left = row_bytes - 8 * k;
  if (left > 0) std::memcpy(row + 8 * k, &w, static_cast<size_t>(left < 8 ? left : 8));
}

}  // namespace bitgrad::detail
