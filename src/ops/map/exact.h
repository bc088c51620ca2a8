// Maps: exact products and sums of integers of any width, written as values of a dtype (out_dtype). docs/numerics.md
// section 4. A product of two int64 has up to 126 bits, so sums are kept in two parts.
#pragma once

#include <cmath>

#include "ops/map/list.h"

namespace bitgrad::maps {
namespace exact {

__extension__ using Int128 = __int128;

// high * 2^64 + low; each part is itself a sum of many terms.
struct WideSum {
  Int128 high = 0, low = 0;
  BITGRAD_HD void add_product(int64_t a, int64_t b) {
    const Int128 p = static_cast<Int128>(a) * b;
    high += p >> 64;
    low += static_cast<uint64_t>(p);
  }
};

// Sets `outside` if x is outside [lo, hi].
BITGRAD_HD inline int64_t clamped(Int128 x, int64_t lo, int64_t hi, bool& outside) {
  outside = outside || x < lo || x > hi;
  return static_cast<int64_t>(x < lo ? lo : (x > hi ? hi : x));
}
BITGRAD_HD inline int64_t clamped(int64_t x, int64_t lo, int64_t hi, bool& outside) {
  outside = outside || x < lo || x > hi;
  return x < lo ? lo : (x > hi ? hi : x);
}
BITGRAD_HD inline int64_t clamped(const WideSum& x, int64_t lo, int64_t hi, bool& outside) {
  const Int128 high = x.high + (x.low >> 64);
  const auto low = static_cast<uint64_t>(x.low);
  if (high < -1 || high > 0) {
    outside = true;
    return high < 0 ? lo : hi;
  }
  return clamped(high * (static_cast<Int128>(1) << 64) + low, lo, hi, outside);
}

BITGRAD_HD inline float rounded(Int128 x) { return static_cast<float>(x); }
BITGRAD_HD inline float rounded(int64_t x) { return static_cast<float>(x); }
BITGRAD_HD inline float rounded(const WideSum& x) {
  const Int128 small = static_cast<Int128>(1) << 62;
  const Int128 high = x.high + (x.low >> 64);
  const auto low = static_cast<uint64_t>(x.low);
  if (high > -small && high < small) return rounded(high * (static_cast<Int128>(1) << 64) + low);
  // The low part can only break a tie, and so does a single odd bit.
  return static_cast<float>(low != 0 ? high | 1 : high) * 0x1p64f;
}

// An integer matrix.
struct Source {
  enum Kind : uint8_t { kInt, kUint, kSign, kInt32, kInt64 };  // the first three are codes of at most 8 bits
  Kind kind = kInt;
  int bits = 8;
  const void* data = nullptr;
  int64_t stride = 0;  // in bytes

  BITGRAD_HD int64_t at(int64_t r, int64_t c) const {
    const char* row = static_cast<const char*>(data) + r * stride;
    if (kind == kInt64) return reinterpret_cast<const int64_t*>(row)[c];
    if (kind == kInt32) return reinterpret_cast<const int32_t*>(row)[c];
    const int64_t bit = c * bits;
    const auto* p = reinterpret_cast<const uint8_t*>(row) + (bit >> 3);
    const int shift = static_cast<int>(bit & 7);
    uint32_t raw = p[0];
    if (shift + bits > 8) raw |= static_cast<uint32_t>(p[1]) << 8;
    raw = (raw >> shift) & ((1u << bits) - 1u);
    if (kind == kSign) return raw != 0 ? 1 : -1;
    const bool negative = kind == kInt && (raw >> (bits - 1)) != 0;
    return static_cast<int64_t>(raw) - (negative ? int64_t{1} << bits : 0);
  }
};

// The output matrix [rows, cols], in runs of 64 columns: whole words of codes.
struct Target {
  enum Kind : uint8_t { kCodes, kFp32, kInt32, kInt64 };
  Kind kind = kCodes;
  int bits = 8;
  int64_t lo = 0, hi = 0;
  void* data = nullptr;
  int64_t stride = 0, cols = 0;
  uint32_t* flags = nullptr;
  uint32_t saturated = 0;  // flag bits set when a value is clamped

  BITGRAD_HD int64_t per_row() const { return (cols + 63) / 64; }
  // number(row, column) returns the exact value.
  template <typename Number>
  BITGRAD_HD void write(int64_t run, const Number& number) const {
    const int64_t r = run / per_row(), first = run % per_row() * 64, last = cols - first < 64 ? cols : first + 64;
    char* row = static_cast<char*>(data) + r * stride;
    auto* words = reinterpret_cast<uint64_t*>(row) + first / 64 * bits;
    uint64_t word = 0;
    int used = 0;
    bool outside = false;
    for (int64_t c = first; c < last; ++c) {
      const auto exact = number(r, c);
      if (kind == kFp32) {
        reinterpret_cast<float*>(row)[c] = rounded(exact);
        continue;
      }
      const int64_t q = clamped(exact, lo, hi, outside);
      if (kind == kInt32) reinterpret_cast<int32_t*>(row)[c] = static_cast<int32_t>(q);
      if (kind == kInt64) reinterpret_cast<int64_t*>(row)[c] = q;
      if (kind != kCodes) continue;
      const uint64_t raw = static_cast<uint64_t>(q) & ((uint64_t{1} << bits) - 1);
      word |= raw << used;
      used += bits;
      if (used < 64) continue;
      *words++ = word;
      used -= 64;
      word = used == 0 ? 0 : raw >> (bits - used);
    }
    if (used > 0) *words = word;
    if (outside) or_flag(flags, saturated);
  }
};

struct ProductNumber {
  Source a, b;
  int64_t k;
  bool b_k_major;  // b is stored as [k, column]
  BITGRAD_HD WideSum operator()(int64_t r, int64_t c) const {
    WideSum sum;
    for (int64_t t = 0; t < k; ++t) sum.add_product(a.at(r, t), b_k_major ? b.at(t, c) : b.at(c, t));
    return sum;
  }
};
struct PointNumber {
  Source a, b;
  bool product;
  BITGRAD_HD Int128 operator()(int64_t r, int64_t c) const {
    const Int128 p = a.at(r, c), q = b.at(r, c);
    return product ? p * q : p + q;
  }
};
struct SumNumber {
  const int64_t* sums;
  int64_t cols;
  BITGRAD_HD int64_t operator()(int64_t r, int64_t c) const { return sums[r * cols + c]; }
};

}  // namespace exact

// y = a b (b_k_major) or a b^T.
struct ExactProductRuns {
  exact::Target y;
  exact::ProductNumber number;
  BITGRAD_HD void operator()(int64_t run) const { y.write(run, number); }
};
// y = a * b or a + b, element-wise.
struct ExactPointRuns {
  exact::Target y;
  exact::PointNumber number;
  BITGRAD_HD void operator()(int64_t run) const { y.write(run, number); }
};
// y = the sums.
struct ExactSumRuns {
  exact::Target y;
  exact::SumNumber number;
  BITGRAD_HD void operator()(int64_t run) const { y.write(run, number); }
};

// y = g times the values of t.
struct TimesIntegers {
  exact::Source t;
  int64_t cols;
  const float* g;
  float* y;
  BITGRAD_HD void operator()(int64_t e) const { y[e] = g[e] * static_cast<float>(t.at(e / cols, e % cols)); }
};

}  // namespace bitgrad::maps
