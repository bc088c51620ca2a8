// Small loops besides the products, which every instruction set compiles for itself. Isa: a tag that keeps the
// instances apart. This header is included inside a target region: no std:: here.
#pragma once

#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::gemm_detail {

template <typename Isa>
struct AmxLoops {
  // The low bits of 1.5 * 2^52 + y are rint(y).
  static void to_digits(const float* __restrict x, const double* __restrict scale, int64_t n, int parts,
                        uint8_t* __restrict out, int64_t stride) {
    constexpr int64_t kPiece = 32;
    for (int64_t j = 0; j < n; j += kPiece) {
      const int64_t count = n - j < kPiece ? n - j : kPiece;
      int32_t q[kPiece] = {};
      for (int64_t i = 0; i < count; ++i) {
        const double shifted = static_cast<double>(x[j + i]) * scale[j + i] + 0x1.8p52;
        q[i] = static_cast<int32_t>(__builtin_bit_cast(int64_t, shifted));
      }
      for (int part = parts - 1; part >= 0; --part) {
        uint8_t digits[kPiece];
        for (int64_t i = 0; i < kPiece; ++i) {
          digits[i] = static_cast<uint8_t>(q[i]);
          q[i] = (q[i] + 128) >> 8;  // q minus its signed low byte, divided by 256
        }
        __builtin_memcpy(out + part * stride + j, digits, static_cast<size_t>(count));
      }
    }
  }
  static int32_t largest_bits(const float* __restrict x, int64_t n, int32_t max) {
    for (int64_t j = 0; j < n; ++j) max = larger(max, __builtin_bit_cast(int32_t, x[j]) & 0x7FFFFFFF);
    return max;
  }
  static void largest_bits_each(const float* __restrict x, int64_t n, int32_t* __restrict max) {
    for (int64_t j = 0; j < n; ++j) max[j] = larger(max[j], __builtin_bit_cast(int32_t, x[j]) & 0x7FFFFFFF);
  }
  // t = float(S of the last part), then t = fma(float(S), 256^i, t) towards the first; out = fp32(t * unit). All values
  // are integers below 2^53, so a sum in double is exact and rounding it gives the fma.
  static void join_digits(const uint8_t* sums, int parts, double unit, float* __restrict out) {
    double t[kBlockSide];
    const auto* last = reinterpret_cast<const int32_t*>(sums + (parts - 1) * kSumBytes);
    for (int j = 0; j < kBlockSide; ++j) t[j] = static_cast<double>(static_cast<float>(last[j]));
    double power = 256;
    for (int part = parts - 2; part >= 0; --part, power *= 256) {
      const auto* sum = reinterpret_cast<const int32_t*>(sums + part * kSumBytes);
      for (int j = 0; j < kBlockSide; ++j)
        t[j] = static_cast<double>(static_cast<float>(static_cast<double>(static_cast<float>(sum[j])) * power + t[j]));
    }
    for (int j = 0; j < kBlockSide; ++j) out[j] = static_cast<float>(t[j] * unit);
  }
  // Warren, "Hacker's Delight", 2nd ed., section 7-3, with bit 0 as the first bit.
  static void transpose_bits(uint32_t* __restrict x) {
    exchange<16>(x, 0x0000FFFFu);
    exchange<8>(x, 0x00FF00FFu);
    exchange<4>(x, 0x0F0F0F0Fu);
    exchange<2>(x, 0x33333333u);
    exchange<1>(x, 0x55555555u);
  }
  // 8 x 8 bytes in each of 8 lanes, 8 lines at a time (same section, applied to bytes).
  static void transpose_bytes(const uint8_t* __restrict in, int64_t stride, int64_t lines, uint8_t* __restrict out) {
    for (int k = 0; k < 64; k += 8) {
      uint64_t x[64];
      for (int r = 0; r < 8; ++r) __builtin_memcpy(x + 8 * r, in + (k + r) * stride, 64);
      exchange_bytes<1>(x, 0x00FF00FF00FF00FFu);
      exchange_bytes<2>(x, 0x0000FFFF0000FFFFu);
      exchange_bytes<4>(x, 0x00000000FFFFFFFFu);
      for (int64_t m = 0; m < lines; ++m) __builtin_memcpy(out + m * 64 + k, x + m % 8 * 8 + m / 8, 8);
    }
  }
  static void interleave(const uint8_t* __restrict in, int64_t stride, uint8_t* __restrict out) {
    uint32_t words[16];
    for (int j = 0; j < 16; ++j) {
      words[j] = static_cast<uint32_t>(in[j]) | static_cast<uint32_t>(in[stride + j]) << 8 |
                 static_cast<uint32_t>(in[2 * stride + j]) << 16 | static_cast<uint32_t>(in[3 * stride + j]) << 24;
    }
    __builtin_memcpy(out, words, 64);
  }

 private:
  static int32_t larger(int32_t a, int32_t b) { return a < b ? b : a; }
  template <int kDistance>
  static inline void exchange_bytes(uint64_t* __restrict x, uint64_t mask) {
    for (int r = 0; r < 8; ++r) {
      if ((r & kDistance) != 0) continue;
      uint64_t *low = x + 8 * r, *high = low + 8 * kDistance;
      for (int lane = 0; lane < 8; ++lane) {
        const uint64_t t = ((low[lane] >> (8 * kDistance)) ^ high[lane]) & mask;
        high[lane] ^= t;
        low[lane] ^= t << (8 * kDistance);
      }
    }
  }
  template <int kDistance>
  static inline void exchange(uint32_t* __restrict x, uint32_t mask) {
    constexpr int kLanes = 16;
    for (int r = 0; r < 32; ++r) {
      if ((r & kDistance) != 0) continue;
      uint32_t *low = x + r * kLanes, *high = low + kDistance * kLanes;
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t t = ((low[lane] >> kDistance) ^ high[lane]) & mask;
        high[lane] ^= t;
        low[lane] ^= t << kDistance;
      }
    }
  }
};

template <typename Isa>
constexpr AmxIsa make_amx_isa(decltype(AmxIsa::loop) loop, decltype(AmxIsa::permute) permute) {
  using L = AmxLoops<Isa>;
  return {loop,
          permute,
          &L::to_digits,
          &L::largest_bits,
          &L::largest_bits_each,
          &L::join_digits,
          &L::transpose_bits,
          &L::transpose_bytes,
          &L::interleave};
}

}  // namespace bitgrad::kernels::gemm_detail
