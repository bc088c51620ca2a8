// Small loops beside the products that every instruction set compiles for itself. Isa: a tag that keeps the instances
// apart. This header is read inside a region of another target: no std:: here.
#pragma once

#include "kernels/gemm/amx.h"

namespace bitgrad::gemm_detail {

template <typename Isa>
struct AmxLoops {
  static void write_scaled(const ScaledRow& row) {
    if (row.columns == kBlockSide) return write_columns(row, kBlockSide);
    write_columns(row, row.columns);
  }
  // |x| * scale < 2^31: the bits of 1.5 * 2^52 + y end in rint(y).
  static void to_fixed(const float* __restrict x, double scale, int32_t* __restrict q) {
    for (int i = 0; i < kTileBytes; ++i) {
      const double shifted = static_cast<double>(x[i]) * scale + 0x1.8p52;
      q[i] = static_cast<int32_t>(__builtin_bit_cast(int64_t, shifted));
    }
  }
  // t = float(S of the last part), then t = fma(float(S), 256^i, t) towards the first; out = fp32(t * unit). All
  // numbers are integers below 2^53, so a sum in double is exact and rounding it is the fma.
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
  // Warren, "Hacker's Delight", 2nd ed., section 7-3, for the order in which bit 0 is the first.
  static void transpose_bits(uint32_t* __restrict x) {
    exchange<16>(x, 0x0000FFFFu);
    exchange<8>(x, 0x00FF00FFu);
    exchange<4>(x, 0x0F0F0F0Fu);
    exchange<2>(x, 0x33333333u);
    exchange<1>(x, 0x55555555u);
  }

 private:
  static inline void write_columns(const ScaledRow& row, int64_t columns) {
    const int32_t* __restrict acc = row.acc;
    float* __restrict c = row.c;
    if (row.bias == nullptr) {
      for (int64_t j = 0; j < columns; ++j) c[j] = static_cast<float>(acc[j]) * (row.sa * row.sb[j]);
    } else {
      for (int64_t j = 0; j < columns; ++j) c[j] = static_cast<float>(acc[j]) * (row.sa * row.sb[j]) + row.bias[j];
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

}  // namespace bitgrad::gemm_detail
