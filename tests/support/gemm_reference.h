// The products of docs/numerics.md section 4, implemented independently for tests: codes are read element by element,
// sums are 128-bit integers or double.
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
// In 1 .. high, with every power of two equally likely.
inline int64_t log_uniform(Rng& rng, int64_t high) {
  const double x = std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(high) + 1))(rng);
  return std::clamp<int64_t>(static_cast<int64_t>(std::exp2(x)), 1, high);
}

// A stored matrix of integer codes. Its stride is random, and padding bytes and bits are noise.
struct CodeMatrix {
  DType dtype;
  int64_t rows = 0, cols = 0, stride = 0;
  std::vector<uint64_t> words;  // 8-byte aligned

  kernels::GemmOperand operand(bool k_major = false) const {
    kernels::GemmOperand x;
    x.data = words.data();
    x.dtype = dtype;
    x.stride = stride;
    x.k_major = k_major;
    return x;
  }
};

// Random codes from the whole range of the dtype.
inline CodeMatrix random_codes(Rng& rng, DType dtype, int64_t rows, int64_t cols) {
  CodeMatrix m{dtype, rows, cols, 0, {}};
  m.stride = (row_bytes_memory(dtype, cols) + 7) / 8 * 8 + 8 * uniform_int(rng, 0, 3);
  m.words.resize(static_cast<size_t>(rows * m.stride / 8 + 1));
  for (uint64_t& word : m.words) word = rng();
  const DTypeInfo& info = dtype.info();
  // If every raw code is legal, noise is valid already.
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
inline std::vector<int64_t> reference_codes(const kernels::GemmOperand& x, int64_t free, int64_t k) {
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

// The value of every element as [free][k] in double: s * (q - z) or s * q + m in fp32, each operation rounded once. Any
// dtype.
inline std::vector<double> reference_values(const kernels::GemmOperand& x, int64_t free, int64_t k) {
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

// sum_k a[i][k] b[j][k] - minus modulo 2^128, saturated to int64.
inline int64_t reference_dot(const int64_t* a, const int64_t* b, int64_t k, int64_t minus = 0) {
  __extension__ using Wide = __int128;
  __extension__ using Modular = unsigned __int128;
  Modular sum = -static_cast<Modular>(minus);
  for (int64_t i = 0; i < k; ++i) sum += static_cast<Modular>(static_cast<Wide>(a[i]) * b[i]);
  return static_cast<int64_t>(std::clamp<Wide>(static_cast<Wide>(sum), std::numeric_limits<int64_t>::min(),
                                               std::numeric_limits<int64_t>::max()));
}
inline double reference_dot(const double* a, const double* b, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
  return sum;
}

// The expected bits of C[i, j], given y before bias and accumulation and the previous bits of C[i, j].
inline uint64_t reference_store(const kernels::GemmArgs& args, int64_t i, int64_t j, float y, uint64_t old) {
  if (args.bias != nullptr) y = y + args.bias[j];
  if (args.c_dtype == dtypes::fp32) {
    if (args.accumulate) y = std::bit_cast<float>(static_cast<uint32_t>(old)) + y;
    return std::bit_cast<uint32_t>(y);
  }
  if (args.accumulate) y = bf16_to_float(static_cast<uint16_t>(old)) + y;
  if (args.sr == nullptr) return bf16_from_float(y);
  return bf16_from_float_stochastic(y, args.sr->bits16(static_cast<uint64_t>(args.first_element + i * args.n + j)));
}
inline uint64_t reference_store(const kernels::GemmArgs& args, int64_t, int64_t, double y, uint64_t old) {
  return std::bit_cast<uint64_t>(args.accumulate ? std::bit_cast<double>(old) + y : y);
}

// A parameter of the element at free index f and contracted index k; `none` if there is no array.
template <typename T>
T reference_param(const kernels::GemmOperand& x, const T* list, int64_t f, int64_t k, T none) {
  return list == nullptr ? none : list[x.k_major ? x.scale.index(k, f) : x.scale.index(f, k)];
}

// The expected bits of C[i, j] of a plain integer product, given its exact sum and the previous bits.
inline uint64_t reference_element(const kernels::GemmArgs& args, int64_t i, int64_t j, int64_t acc, uint64_t old) {
  if (args.c_dtype == dtypes::int64) return static_cast<uint64_t>(acc);
  if (args.c_dtype == dtypes::int32) {
    return static_cast<uint32_t>(static_cast<int32_t>(std::clamp<int64_t>(acc, INT32_MIN, INT32_MAX)));
  }
  const float sa = reference_param(args.a, args.a.scale.scale, i, 0, 1.0f);
  const float sb = reference_param(args.b, args.b.scale.scale, j, 0, 1.0f);
  if (args.c_dtype == dtypes::fp64) {
    return reference_store(args, i, j, static_cast<double>(acc) * (static_cast<double>(sa) * static_cast<double>(sb)),
                           old);
  }
  const float s = sa * sb;
  return reference_store(args, i, j, static_cast<float>(acc) * s, old);
}

// The same for products with real offsets per tensor or per free index. a, b: rows of reference_codes.
template <typename Float>
uint64_t reference_offsets(const kernels::GemmArgs& args, int64_t i, int64_t j, const int64_t* a, const int64_t* b,
                           uint64_t old) {
  int64_t sum_ab = 0, sum_a = 0, sum_b = 0;
  for (int64_t k = 0; k < args.k; ++k) {
    sum_ab += a[k] * b[k];
    sum_a += a[k];
    sum_b += b[k];
  }
  const Float sa = reference_param(args.a, args.a.scale.scale, i, 0, 1.0f);
  const Float sb = reference_param(args.b, args.b.scale.scale, j, 0, 1.0f);
  const Float ma = reference_param(args.a, args.a.scale.offset, i, 0, 0.0f);
  const Float mb = reference_param(args.b, args.b.scale.offset, j, 0, 0.0f);
  const Float both = sa * sb, left = sa * mb, right = ma * sb, constant = ma * mb;
  Float y = static_cast<Float>(sum_ab) * both;
  if (args.b.scale.offset != nullptr) {
    const Float term = static_cast<Float>(sum_a) * left;
    y = y + term;
  }
  if (args.a.scale.offset != nullptr) {
    const Float term = static_cast<Float>(sum_b) * right;
    y = y + term;
  }
  if (args.a.scale.offset != nullptr && args.b.scale.offset != nullptr) {
    const Float term = static_cast<Float>(args.k) * constant;
    y = y + term;
  }
  return reference_store(args, i, j, y, old);
}

// The same for groups of `group` contracted indices of B; `blocks`: A has scales of its own along k, whose groups and
// B's are whole ones of these.
template <typename Float>
uint64_t reference_groups(const kernels::GemmArgs& args, int64_t group, int64_t i, int64_t j, const int64_t* a,
                          const int64_t* b, uint64_t old, bool blocks = false) {
  Float t = 0;
  for (int64_t first = 0; first < args.k; first += group) {
    int64_t acc = 0, sum_a = 0;
    for (int64_t k = first; k < std::min(args.k, first + group); ++k) {
      acc += a[k] * b[k];
      sum_a += a[k];
    }
    Float s = reference_param(args.b, args.b.scale.scale, j, first, 1.0f);
    const Float sa = reference_param(args.a, args.a.scale.scale, i, first, 1.0f);
    if (blocks) s = s * sa;
    Float term = static_cast<Float>(acc) * s;
    if (args.b.scale.offset != nullptr) {
      Float m = args.b.scale.offset[args.b.k_major ? args.b.scale.index(first, j) : args.b.scale.index(j, first)];
      if (blocks) m = m * sa;
      const Float offset = static_cast<Float>(sum_a) * m;
      term = term + offset;
    }
    t = t + term;
  }
  if (blocks) return reference_store(args, i, j, t, old);
  const Float sa = reference_param(args.a, args.a.scale.scale, i, 0, 1.0f);
  return reference_store(args, i, j, t * sa, old);
}

// C filled with finite values of its dtype.
inline std::vector<uint8_t> old_c(Rng& rng, const kernels::GemmArgs& args) {
  constexpr size_t kNumbers = 61;
  double numbers[kNumbers];
  for (double& number : numbers) number = static_cast<double>(uniform_int(rng, -2000, 2000));
  const size_t size = static_cast<size_t>(args.c_dtype.bits() / 8),
               total = static_cast<size_t>(args.m * args.ldc + 1) * size;
  std::vector<uint8_t> c((total / (kNumbers * size) + 1) * kNumbers * size);
  pack_row(args.c_dtype, numbers, kNumbers, c.data());
  for (size_t at = kNumbers * size; at < total; at += kNumbers * size)
    std::memcpy(c.data() + at, c.data(), kNumbers * size);
  return c;
}

inline uint64_t element_bits(const std::vector<uint8_t>& c, DType dtype, int64_t at) {
  uint64_t bits = 0;
  const int64_t size = dtype.bits() / 8;
  std::memcpy(&bits, c.data() + at * size, static_cast<size_t>(size));
  return bits;
}

// Indices of C to check: all of a small extent, otherwise both ends and a random few.
inline std::vector<int64_t> some_of(Rng& rng, int64_t extent, int64_t max) {
  std::vector<int64_t> picked;
  if (extent <= max) {
    for (int64_t i = 0; i < extent; ++i) picked.push_back(i);
    return picked;
  }
  picked = {0, extent - 1, extent - extent % 16 - (extent % 16 == 0)};
  while (static_cast<int64_t>(picked.size()) < max) picked.push_back(uniform_int(rng, 0, extent - 1));
  return picked;
}

// Runs `kernel`; counts wrong elements in a sample of C and every modified element outside [m, n]. expected(i, j, old):
// the expected bits of C[i, j].
template <typename Expected>
int64_t wrong_elements(Rng& rng, const kernels::GemmKernel& kernel, kernels::GemmArgs args, Expected&& expected) {
  const std::vector<uint8_t> before = old_c(rng, args);
  std::vector<uint8_t> c = before;
  args.c = c.data();
  kernel.run(args);
  int64_t wrong = 0;
  const int64_t max = args.m * args.n * args.k > 100000 ? 10 : 300;
  for (const int64_t i : some_of(rng, args.m, max)) {
    for (const int64_t j : some_of(rng, args.n, max)) {
      const int64_t at = i * args.ldc + j;
      wrong += element_bits(c, args.c_dtype, at) != expected(i, j, element_bits(before, args.c_dtype, at));
    }
  }
  for (int64_t at = 0; at < args.m * args.ldc + 1; ++at) {
    const bool outside = at == args.m * args.ldc || at % args.ldc >= args.n;
    if (outside) wrong += element_bits(c, args.c_dtype, at) != element_bits(before, args.c_dtype, at);
  }
  return wrong;
}

}  // namespace bitgrad::test
