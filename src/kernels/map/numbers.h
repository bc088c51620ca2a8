// Shared by the maps of quantizers: small scalar functions that give the same bits on every device, and the shapes of
// blocks.
#pragma once

#include <cmath>
#include <cstring>

#include "bitgrad/dtype/dtype.h"
#include "kernels/map/list.h"
#include "kernels/quantize.h"

namespace bitgrad::maps::q {

BITGRAD_HD inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
BITGRAD_HD inline float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
BITGRAD_HD inline bool finite(float x) { return (bits_of(x) & 0x7F800000u) != 0x7F800000u; }
BITGRAD_HD inline float larger(float a, float b) { return a < b ? b : a; }   // like std::max, also for NaN
BITGRAD_HD inline float smaller(float a, float b) { return b < a ? b : a; }  // like std::min
// Clamps x to [lo, hi]; NaN becomes lo.
BITGRAD_HD inline float clamped(float x, float lo, float hi) { return x > lo ? (x < hi ? x : hi) : lo; }
BITGRAD_HD inline float magnitude(float x) { return of_bits(bits_of(x) & 0x7FFFFFFFu); }

// 2^ceil(log2 s) from the exponent bits, s > 0. Inf above 2^127; NaN stays NaN, whose sign is the machine's.
BITGRAD_HD inline float ceil_pow2(float s) {
  uint32_t bits = bits_of(s);
  if (s != s) return s;
  if (bits >= 0x00800000u) return of_bits((bits + 0x007FFFFFu) & 0xFF800000u);
  if (bits <= 1) return of_bits(1);
  bits -= 1;          // subnormal: the next power of two of the bit pattern
  bits |= bits >> 1;  // no loop, so that loops over blocks still vectorize
  bits |= bits >> 2;
  bits |= bits >> 4;
  bits |= bits >> 8;
  bits |= bits >> 16;
  return of_bits(bits + 1);
}

// 2^round(log2 x), x > 0 and normal: the next power of two if the fraction exceeds sqrt 2 = 0x3FB504F3.
BITGRAD_HD inline float round_pow2(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t up = (bits & 0x007FFFFFu) > 0x003504F3u ? 0x00800000u : 0u;
  return of_bits((bits & 0xFF800000u) + up);
}

// Rounds to the nearest fp16 value, ties to even; Inf from 65520 on. NaN stays NaN.
BITGRAD_HD inline float round_fp16(float x) {
  const uint32_t bits = bits_of(x), sign = bits & 0x80000000u;
  const float a = magnitude(x);
  const float small = (a + 0.5f) - 0.5f;  // multiples of 2^-24, the spacing of fp16 below 2^-14 and of fp32 at 1/2
  const uint32_t wide = ((bits ^ sign) + 0xFFFu + (((bits ^ sign) >> 13) & 1u)) & 0xFFFFE000u;
  const float rounded = a < 0x1p-14f ? small : (a < 65520.0f ? of_bits(wide) : of_bits(0x7F800000u));
  return a == a ? of_bits(bits_of(rounded) | sign) : x;
}

// 2^e, -1022 <= e <= 1023.
BITGRAD_HD inline double pow2(int64_t e) {
  const uint64_t bits = static_cast<uint64_t>(e + 1023) << 52;
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Number of elements in each block of a [rows, cols] matrix; ragged blocks count only the elements they have. kGroups:
// blocks along a row; kDown: along axis 0.
struct BlockSizes {
  enum Kind : uint8_t { kAll, kRows, kColumns, kGroups, kDown };
  Kind kind = kAll;
  int64_t rows = 0, cols = 0, group = 0;

  BITGRAD_HD int64_t elements(int64_t block) const {
    if (kind == kRows) return cols;
    if (kind == kColumns) return rows;
    if (kind == kGroups) return run(cols, block % ((cols + group - 1) / group));
    if (kind == kDown) return run(rows, block / cols);
    return rows * cols;
  }
  // The same as a float, for use as the divisor of a mean.
  BITGRAD_HD float of(int64_t block) const { return static_cast<float>(elements(block)); }

 private:
  BITGRAD_HD int64_t run(int64_t n, int64_t index) const {
    const int64_t left = n - index * group;
    return left < group ? left : group;
  }
};

// Rounds a scale s > 0.
BITGRAD_HD inline float rounded_scale(const ScaleRounding& rounding, float s) {
  if (rounding.pow2) s = ceil_pow2(s);
  if (rounding.fp16) s = larger(round_fp16(s), 0x1p-24f);
  return s;
}
BITGRAD_HD inline float rounded_offset(const ScaleRounding& rounding, float m) {
  return rounding.fp16 ? round_fp16(m) : m;
}

// Where a map writes one value per block. flags: sets kFlagNonFinite if the value is NaN or Inf and replaces it by 1,
// so that later steps get legal values; nullptr: the caller checks the values.
struct BlockOut {
  float* out = nullptr;
  uint32_t* flags = nullptr;
  ScaleRounding rounding = {};  // applied to scales

  BITGRAD_HD float store(int64_t block, float number) const {
    number = rounded_scale(rounding, number);
    if (flags != nullptr && !finite(number)) {
      or_flag(flags, kFlagNonFinite);
      number = 1.0f;
    }
    out[block] = number;
    return number;
  }
};

// ScaleMap::index for use in maps.
BITGRAD_HD inline int64_t index_of(const ScaleMap& map, int64_t r, int64_t c) {
  return (r / map.row_group) * map.row_step + (c / map.col_group) * map.col_step;
}

// Maps element e of a dense matrix to its block.
struct Elements {
  int64_t cols = 1;
  ScaleMap map;
  BITGRAD_HD int64_t block(int64_t e) const {
    if (map.row_step == 0 && map.col_step == 0) return 0;
    return index_of(map, e / cols, e % cols);
  }
};

}  // namespace bitgrad::maps::q
