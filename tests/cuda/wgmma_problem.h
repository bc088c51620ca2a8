// Products by wgmma with all that an output can ask for, and what they must be: int64 sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/gemm/wgmma/plan.h"
#include "device_array.h"
#include "support/catch.h"
#include "support/plain_loops.h"

namespace bitgrad::cuda::wgmma_test {

using namespace kernels;
using gemm::TileForm;
using test::DeviceArray;

// A quantized matrix [rows, k]: its numbers, and its canonical rows with whatever behind them.
struct Matrix {
  DType dtype;
  int64_t rows, k, stride;
  std::vector<int16_t> numbers;
  std::vector<uint8_t> bytes;

  Matrix(DType type, int64_t rows_, int64_t k_, std::mt19937& random, int64_t slack = 0)
      : dtype(type), rows(rows_), k(k_), stride((k_ * type.bits() + 127) / 128 * 16 + 16 * slack) {
    const int bits = dtype.bits();
    bytes.resize(static_cast<size_t>(rows * stride));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const int64_t used = (k * bits + 7) / 8;
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t* row = &bytes[static_cast<size_t>(r * stride)];
      std::fill(row, row + used, uint8_t{0});
      for (int64_t i = 0; i < k; ++i) {
        const auto& info = dtype.info();
        const int64_t span = dtype.kind() == DTypeKind::kSign ? 2 : info.qmax - info.qmin + 1;
        const int64_t draw = random() % 8 == 0 ? (random() % 2) * (span - 1)
                                               : static_cast<int64_t>(random() % static_cast<uint64_t>(span));
        const int64_t number = dtype.kind() == DTypeKind::kSign ? 2 * draw - 1 : info.qmin + draw;
        const uint64_t raw = dtype.kind() == DTypeKind::kSign ? static_cast<uint64_t>(draw)
                                                              : static_cast<uint64_t>(number) & ((1u << bits) - 1u);
        for (int b = 0; b < bits; ++b)
          row[(i * bits + b) / 8] |= static_cast<uint8_t>((raw >> b & 1u) << ((i * bits + b) % 8));
        numbers.push_back(static_cast<int16_t>(number));
      }
    }
  }
  const int16_t* row(int64_t r) const { return numbers.data() + r * k; }
};

struct Options {
  DType out = dtypes::fp32;
  bool scale_rows = false, scale_columns = false, scale_tensor = false, bias = false, accumulate = false;
  bool zero_a = false, zero_b = false, row_minus = false, stochastic = false;
  int64_t extra_ldc = 0;
};

// The bytes of a matrix in a layout.
inline std::vector<uint8_t> stored(const Matrix& x, Layout layout) {
  if (layout == layouts::canonical) return x.bytes;
  std::vector<uint8_t> out(static_cast<size_t>(layout.info().bytes(x.dtype, x.rows, x.k)));
  layout.info().pack(x.dtype, x.rows, x.k, x.bytes.data(), x.stride, out.data());
  return out;
}

using Run = void (*)(const GemmArgs&, TileForm, int);

template <typename T>
std::vector<T> drawn(size_t count, std::mt19937& random, int64_t low, int64_t high) {
  std::vector<T> out(count);
  for (T& x : out) x = static_cast<T>(low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)));
  return out;
}

inline std::vector<float> drawn_scales(size_t count, std::mt19937& random) {
  std::vector<float> out(count);
  for (float& x : out)
    x = std::ldexp(1.0f + static_cast<float>(random() % 4096) / 4096.0f, static_cast<int>(random() % 8) - 10);
  return out;
}

inline float expected_value(float y, float old, const Options& options) { return options.accumulate ? old + y : y; }

// The loop of the reference.
BITGRAD_PLAIN_LOOPS inline int32_t dot(const int16_t* a, const int16_t* b, int64_t count) {
  int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Everything of one product on the host, and its check.
class Problem {
 public:
  Problem(DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, uint32_t seed)
      : random_(seed), options_(options), a_(a, m, k, random_, seed % 3), b_(b, n, k, random_, seed % 2) {
    ldc_ = n + options.extra_ldc;
    const size_t rows = options.scale_tensor ? 1 : static_cast<size_t>(m), columns = static_cast<size_t>(n);
    scale_a_ = drawn_scales(rows, random_);
    scale_b_ = drawn_scales(options.scale_tensor ? 1 : columns, random_);
    zero_a_ = drawn<int32_t>(rows, random_, -130, 300);
    zero_b_ = drawn<int32_t>(options.scale_tensor ? 1 : columns, random_, -130, 300);
    minus_ = drawn<int64_t>(static_cast<size_t>(m), random_, -100000, 100000);
    bias_ = drawn_scales(columns, random_);
    const auto bytes = static_cast<size_t>(m * ldc_) * static_cast<size_t>(options.out.bits() / 8);
    old_ = drawn<uint8_t>(bytes, random_, 0, 63);
  }

  void check(Run run, TileForm form, int blocks, Layout b_layout = layouts::canonical) {
    const DeviceGuard guard(Device::cuda());
    if (test::skipped_without_on_device(isa::kWgmma)) return;
    DeviceArray<uint8_t> a(a_.bytes), b(stored(b_, b_layout)), c(old_);
    DeviceArray<float> scale_a(scale_a_), scale_b(scale_b_), bias(bias_);
    DeviceArray<int32_t> zero_a(zero_a_), zero_b(zero_b_);
    DeviceArray<int64_t> minus(minus_);
    GemmArgs args;
    args.m = a_.rows;
    args.n = b_.rows;
    args.k = a_.k;
    const int64_t step = options_.scale_tensor ? 0 : 1;
    args.a = {a.data(), a_.dtype, layouts::canonical, a_.stride, false, {}};
    args.b = {b.data(), b_.dtype, b_layout, b_.stride, false, {}};
    args.a.scale.row_step = args.b.scale.row_step = step;
    if (options_.scale_rows) args.a.scale.scale = scale_a.data();
    if (options_.scale_columns) args.b.scale.scale = scale_b.data();
    if (options_.zero_a) args.a.scale.zero = zero_a.data();
    if (options_.zero_b) args.b.scale.zero = zero_b.data();
    if (options_.row_minus) args.row_minus = minus.data();
    if (options_.bias) args.bias = bias.data();
    args.accumulate = options_.accumulate;
    const RandomStream stream{77, Purpose::kInit, 5, 3};
    if (options_.stochastic) args.sr = &stream;
    args.c = c.data();
    args.c_dtype = options_.out;
    args.ldc = ldc_;
    run(args, form, blocks);
    compare(c.values(), stream);
  }

 private:
  void compare(const std::vector<uint8_t>& got, const RandomStream& stream) {
    std::vector<uint8_t> expected = old_;
    for (int64_t i = 0; i < a_.rows; ++i)
      for (int64_t j = 0; j < b_.rows; ++j) put(expected, i, j, stream);
    for (int64_t i = 0; i < a_.rows; ++i) {
      const size_t row = static_cast<size_t>(i * ldc_) * size(), bytes = static_cast<size_t>(ldc_) * size();
      size_t same = 0;
      while (same < bytes && got[row + same] == expected[row + same]) ++same;
      INFO("m " << a_.rows << " n " << b_.rows << " k " << a_.k << " of " << a_.dtype << " x " << b_.dtype << " to "
                << options_.out << ", row " << i << ": its bytes differ from byte " << same << " on");
      REQUIRE(same == bytes);
    }
  }
  size_t size() const { return static_cast<size_t>(options_.out.bits() / 8); }

  template <typename T>
  T* cell(std::vector<uint8_t>& c, int64_t i, int64_t j) const {
    return reinterpret_cast<T*>(&c[static_cast<size_t>(i * ldc_ + j) * size()]);
  }

  int64_t sum(int64_t i, int64_t j) const {
    const size_t pa = options_.scale_tensor ? 0 : static_cast<size_t>(i),
                 pb = options_.scale_tensor ? 0 : static_cast<size_t>(j);
    const int64_t za = options_.zero_a ? zero_a_[pa] : 0, zb = options_.zero_b ? zero_b_[pb] : 0;
    const int16_t *const a = a_.row(i), *const b = b_.row(j);
    int64_t sum = options_.row_minus ? -minus_[static_cast<size_t>(i)] : 0;
    if (za != 0 || zb != 0) {
      for (int64_t x = 0; x < a_.k; ++x) sum += (a[x] - za) * (b[x] - zb);
      return sum;
    }
    constexpr int64_t kBlock = 32768;  // 2^15 products of numbers of 8 bits in int32
    for (int64_t begin = 0; begin < a_.k; begin += kBlock)
      sum += dot(a + begin, b + begin, std::min(kBlock, a_.k - begin));
    return sum;
  }

  void put(std::vector<uint8_t>& c, int64_t i, int64_t j, const RandomStream& stream) const {
    const int64_t exact = sum(i, j);
    if (options_.out == dtypes::int64) {
      *cell<int64_t>(c, i, j) = exact;
      return;
    }
    if (options_.out == dtypes::int32) {
      *cell<int32_t>(c, i, j) = static_cast<int32_t>(std::clamp<int64_t>(exact, INT32_MIN, INT32_MAX));
      return;
    }
    const size_t pa = options_.scale_tensor ? 0 : static_cast<size_t>(i),
                 pb = options_.scale_tensor ? 0 : static_cast<size_t>(j);
    const float sa = options_.scale_rows ? scale_a_[pa] : 1.0f, sb = options_.scale_columns ? scale_b_[pb] : 1.0f;
    float y = static_cast<float>(exact) * (sa * sb);
    if (options_.bias) y = y + bias_[static_cast<size_t>(j)];
    if (options_.out == dtypes::fp32) {
      float* to = cell<float>(c, i, j);
      *to = expected_value(y, *to, options_);
      return;
    }
    uint16_t* to = cell<uint16_t>(c, i, j);
    y = expected_value(y, bf16_to_float(*to), options_);
    *to = options_.stochastic ? bf16_from_float_stochastic(y, stream.bits16(static_cast<uint64_t>(i * b_.rows + j)))
                              : bf16_from_float(y);
  }

  std::mt19937 random_;
  Options options_;
  Matrix a_, b_;
  int64_t ldc_ = 0;
  std::vector<float> scale_a_, scale_b_, bias_;
  std::vector<int32_t> zero_a_, zero_b_;
  std::vector<int64_t> minus_;
  std::vector<uint8_t> old_;
};

inline void check_ss(DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, TileForm form,
                     int blocks = 4) {
  static uint32_t seed = 1000;
  Problem(a, b, m, n, k, options, ++seed).check(&gemm::run_wgmma_ss, form, blocks);
}

inline void check_rs(DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, TileForm form,
                     int blocks = 4) {
  static uint32_t seed = 5000;
  Problem(a, b, m, n, k, options, ++seed).check(&gemm::run_wgmma_rs, form, blocks, layouts::frag64);
}

}  // namespace bitgrad::cuda::wgmma_test
