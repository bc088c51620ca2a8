// The products of docs/numerics.md section 4, written once more for tests: codes are read element by element, sums are
// 128 bits or double.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::test {

using Rng = std::mt19937_64;
inline int64_t uniform_int(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}
// 1 .. high, every power of two as likely as the next.
inline int64_t log_uniform(Rng& rng, int64_t high) {
  const double x = std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(high) + 1))(rng);
  return std::clamp<int64_t>(static_cast<int64_t>(std::exp2(x)), 1, high);
}

// A stored matrix of integer codes. Its stride is random, and bytes and bits that hold no element are noise.
struct CodeMatrix {
  DType dtype;
  int64_t rows = 0, cols = 0, stride = 0;
  std::vector<uint64_t> words;  // 8-byte aligned

  GemmOperand operand(bool k_major = false) const {
    GemmOperand x;
    x.data = words.data();
    x.dtype = dtype;
    x.stride = stride;
    x.k_major = k_major;
    return x;
  }
};

// Codes drawn from the whole range of the dtype.
inline CodeMatrix random_codes(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  CodeMatrix m{dtype, rows, cols, 0, {}};
  m.stride = (row_bytes_memory(dtype, cols) + 7) / 8 * 8 + 8 * uniform_int(rng, 0, 3);
  m.words.resize(static_cast<size_t>(rows * m.stride / 8 + 1));
  for (uint64_t& word : m.words) word = rng();
  const DTypeInfo& info = dtype.info();
  // Noise is a legal code already where every raw code is one.
  if (info.bits == 1 || info.bits > 8 || info.qmax - info.qmin + 1 == int64_t{1} << info.bits) return m;
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* row = reinterpret_cast<uint8_t*>(m.words.data()) + r * m.stride;
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t q = info.qmin + static_cast<int64_t>(static_cast<uint32_t>(rng()) %
                                                         static_cast<uint32_t>(info.qmax - info.qmin + 1));
      store_raw(row, c, info.bits, static_cast<uint32_t>(encode_int(info, q)));
    }
  }
  return m;
}

// q - z of every element as [free][k], from canonical storage in either order. Kinds int, uint, sign.
inline std::vector<int64_t> reference_codes(const GemmOperand& x, int64_t free, int64_t k) {
  std::vector<int64_t> out(static_cast<size_t>(free * k));
  const DTypeInfo& info = x.dtype.info();
  int64_t small[256] = {};
  for (uint64_t raw = 0; info.bits <= 8 && raw < uint64_t{1} << info.bits; ++raw) small[raw] = decode_int(info, raw);
  for (int64_t f = 0; f < free; ++f) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t r = x.k_major ? i : f, c = x.k_major ? f : i;
      const uint8_t* row = static_cast<const uint8_t*>(x.data) + r * x.stride;
      int64_t& number = out[static_cast<size_t>(f * k + i)];
      if (info.bits <= 8) {
        number = small[load_raw(row, c, info.bits)];
      } else {
        uint64_t raw = 0;
        std::memcpy(&raw, row + c * info.bits / 8, static_cast<size_t>(info.bits / 8));
        number = decode_int(info, raw);
      }
      if (x.scale.zero != nullptr) number -= x.scale.zero[x.scale.index(r, c)];
    }
  }
  return out;
}

// The number of every element as [free][k] in double: s * (q - z) or s * q + m in fp32, each operation rounded once.
// Any dtype.
inline std::vector<double> reference_values(const GemmOperand& x, int64_t free, int64_t k) {
  std::vector<double> out(static_cast<size_t>(free * k));
  for (int64_t f = 0; f < free; ++f) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t r = x.k_major ? i : f, c = x.k_major ? f : i;
      double q = 0;
      unpack_row(x.dtype, static_cast<const uint8_t*>(x.data) + r * x.stride, c, 1, &q);
      double& value = out[static_cast<size_t>(f * k + i)];
      if (x.scale.trivial()) {
        value = q;
        continue;
      }
      const int64_t at = x.scale.index(r, c);
      const float s = x.scale.scale == nullptr ? 1.0f : x.scale.scale[at];
      float y = static_cast<float>(q);
      if (x.scale.zero != nullptr) y = y - static_cast<float>(x.scale.zero[at]);
      y = s * y;
      if (x.scale.offset != nullptr) y = y + x.scale.offset[at];
      value = static_cast<double>(y);
    }
  }
  return out;
}

// sum_k a[i][k] b[j][k], saturated to int64.
inline int64_t reference_dot(const int64_t* a, const int64_t* b, int64_t k) {
  __extension__ __int128 sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<__int128>(a[i]) * b[i];
  sum = std::clamp<__int128>(sum, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(sum);
}
inline double reference_dot(const double* a, const double* b, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
  return sum;
}

// The bits that C[i, j] of an integer product must hold, given its exact sum and the bits that it held before.
inline uint64_t reference_element(const GemmArgs& args, int64_t i, int64_t j, int64_t acc, uint64_t old) {
  const auto scale_of = [](const GemmOperand& x, int64_t f) {
    return x.scale.scale == nullptr ? 1.0f : x.scale.scale[x.k_major ? x.scale.index(0, f) : x.scale.index(f, 0)];
  };
  if (args.c_dtype == dtypes::int64) return static_cast<uint64_t>(acc);
  if (args.c_dtype == dtypes::int32) {
    return static_cast<uint32_t>(static_cast<int32_t>(std::clamp<int64_t>(acc, INT32_MIN, INT32_MAX)));
  }
  const float sa = scale_of(args.a, i), sb = scale_of(args.b, j);
  if (args.c_dtype == dtypes::fp64) {
    double y = static_cast<double>(acc) * (static_cast<double>(sa) * static_cast<double>(sb));
    if (args.accumulate) y = std::bit_cast<double>(old) + y;
    return std::bit_cast<uint64_t>(y);
  }
  const float s = sa * sb;
  float y = static_cast<float>(acc) * s;
  if (args.bias != nullptr) y = y + args.bias[j];
  if (args.c_dtype == dtypes::fp32) {
    if (args.accumulate) y = std::bit_cast<float>(static_cast<uint32_t>(old)) + y;
    return std::bit_cast<uint32_t>(y);
  }
  if (args.accumulate) y = bf16_to_float(static_cast<uint16_t>(old)) + y;
  if (args.sr == nullptr) return bf16_from_float(y);
  return bf16_from_float_stochastic(y, args.sr->bits16(static_cast<uint64_t>(i * args.n + j)));
}

}  // namespace bitgrad::test
