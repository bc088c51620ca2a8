// 16 lanes in memory, for the loops of direct convolutions (src/kernels/conv/{binary,first_layer}).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "bitgrad/dtype/bf16.h"

namespace bitgrad::kernels::conv {

struct MemoryLanes {
  using F = std::array<float, 16>;
  using I = std::array<uint32_t, 16>;
  template <typename Op>
  static F each(Op&& op) {
    F v;
    for (size_t i = 0; i < 16; ++i) v[i] = op(i);
    return v;
  }
  template <typename V, typename T>
  static V read(const T* p, int64_t n = 16) {
    V v{};
    std::memcpy(v.data(), p, static_cast<size_t>(std::min<int64_t>(n, 16)) * 4);
    return v;
  }
  template <typename T, typename V>
  static void write(T* p, const V& v, int64_t n = 16) {
    std::memcpy(p, v.data(), static_cast<size_t>(std::min<int64_t>(n, 16)) * 4);
  }
  static F zero() { return F{}; }
  static F all(const float* p) {
    return each([&](size_t) { return *p; });
  }
  static F load(const float* p) { return read<F>(p); }
  static F load_part(const float* p, int64_t n) { return read<F>(p, n); }
  static F load_bytes(const int8_t* p, int64_t n) {
    return each([&](size_t i) { return static_cast<int64_t>(i) < n ? static_cast<float>(p[i]) : 0.0f; });
  }
  static void store(float* p, const F& v) { write(p, v); }
  static void store_part(float* p, const F& v, int64_t n) { write(p, v, n); }
  static void fetch(const void*) {}
  static F add(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] + b[i]; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] * b[i]; });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](size_t i) { return std::fma(a[i], b[i], c[i]); });
  }
  static F rounded(const F& v) {
    return each([&](size_t i) { return bf16_to_float(bf16_from_float(v[i])); });
  }
  static F permute(const I& at, const F& table) {
    return each([&](size_t i) { return table[at[i] % 16]; });
  }
  static void transpose(F (&v)[4]) {
    const std::array<F, 4> from{v[0], v[1], v[2], v[3]};
    for (size_t j = 0; j < 4; ++j)
      for (size_t i = 0; i < 16; ++i) v[j][i] = from[i % 4][i / 4 * 4 + j];
  }
  static I no_bits() { return I{}; }
  static I bits(I v, uint16_t lanes, uint32_t bit) {
    for (size_t i = 0; i < 16; ++i)
      if ((lanes >> i & 1) != 0) v[i] |= bit;
    return v;
  }
  static I load_index(const int32_t* p) { return read<I>(p); }
  static I once(const I& v) { return v; }
  static void store(int32_t* p, const I& v) { write(p, v); }
  static void store_part(int32_t* p, const I& v, int64_t n) { write(p, v, n); }
  // 64-bit words occupy pairs of lanes.
  static I load_words(const uint64_t* p) { return read<I>(p); }
  static I word(const void* p) {
    I v{};
    for (size_t i = 0; i < 16; i += 2) std::memcpy(&v[i], p, 8);
    return v;
  }
  static I add_differences(I sum, const I& a, const I& b, const I& mask) {
    for (size_t i = 0; i < 16; ++i) sum[i / 2 * 2] += static_cast<uint32_t>(std::popcount((a[i] ^ b[i]) & mask[i]));
    return sum;
  }
  static I narrow(const I& low, const I& high) {
    I v;
    for (size_t i = 0; i < 16; ++i) v[i] = i < 8 ? low[2 * i] : high[2 * i - 16];
    return v;
  }
  static I products(I differences, int32_t n) {
    for (uint32_t& d : differences) d = static_cast<uint32_t>(n) - 2 * d;
    return differences;
  }
  static F floats(const I& v) {
    return each([&](size_t i) { return static_cast<float>(static_cast<int32_t>(v[i])); });
  }
  static void store_integers(int32_t* p, const F& v, int64_t n) {
    for (int64_t i = 0; i < n && i < 16; ++i) p[i] = static_cast<int32_t>(v[static_cast<size_t>(i)]);
  }
};

}  // namespace bitgrad::kernels::conv
