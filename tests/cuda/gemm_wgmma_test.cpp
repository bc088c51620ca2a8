// Products by wgmma on an emulated sm_90a against int64 sums: shapes at and past the edges of tiles, more tiles than
// blocks, all outputs and corrections.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/gemm/cuda_kernels.h"
#include "cuda/kernels/gemm/wgmma_plan.h"
#include "device_array.h"
#include "support/catch.h"

namespace bitgrad::cuda {

using namespace kernels;
namespace {

using gemm::TileForm;
using test::DeviceArray;

// A quantized matrix [rows, k]: its numbers, and its canonical rows with whatever behind them.
struct Matrix {
  DType dtype;
  int64_t rows, k, stride;
  std::vector<int64_t> numbers;
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
        numbers.push_back(number);
      }
    }
  }
  int64_t at(int64_t r, int64_t i) const { return numbers[static_cast<size_t>(r * k + i)]; }
};

struct Options {
  DType out = dtypes::fp32;
  bool scale_rows = false, scale_columns = false, scale_tensor = false, bias = false, accumulate = false;
  bool zero_a = false, zero_b = false, row_minus = false, stochastic = false;
  int64_t extra_ldc = 0;
};

// The bytes of a matrix in a layout.
std::vector<uint8_t> stored(const Matrix& x, Layout layout) {
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

std::vector<float> drawn_scales(size_t count, std::mt19937& random) {
  std::vector<float> out(count);
  for (float& x : out)
    x = std::ldexp(1.0f + static_cast<float>(random() % 4096) / 4096.0f, static_cast<int>(random() % 8) - 10);
  return out;
}

float expected_value(float y, float old, const Options& options) { return options.accumulate ? old + y : y; }

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
      INFO("m " << a_.rows << " n " << b_.rows << " k " << a_.k << " row " << i << " seed of " << a_.dtype << " x "
                << b_.dtype);
      REQUIRE(std::memcmp(&got[row], &expected[row], bytes) == 0);
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
    int64_t sum = options_.row_minus ? -minus_[static_cast<size_t>(i)] : 0;
    for (int64_t x = 0; x < a_.k; ++x) sum += (a_.at(i, x) - za) * (b_.at(j, x) - zb);
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

void check_ss(DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, TileForm form,
              int blocks = 4) {
  static uint32_t seed = 1000;
  Problem(a, b, m, n, k, options, ++seed).check(&gemm::run_wgmma_ss, form, blocks);
}

void check_rs(DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, TileForm form,
              int blocks = 4) {
  static uint32_t seed = 5000;
  Problem(a, b, m, n, k, options, ++seed).check(&gemm::run_wgmma_rs, form, blocks, layouts::frag64);
}

constexpr TileForm kForms[] = {gemm::kWideTile256, gemm::kNarrowTile128};

TEST_CASE("wgmma products of bytes equal int64 sums at the edges of tiles") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms) {
    check_ss(dtypes::int8, dtypes::int8, 1, 1, 1, options, form);
    check_ss(dtypes::int8, dtypes::int8, 128, 128, 128, options, form);
    check_ss(dtypes::int8, dtypes::int8, 129, 257, 129, options, form);
    check_ss(dtypes::int8, dtypes::int8, 64, 65, 700, options, form);
    check_ss(dtypes::int8, dtypes::int8, 127, 8, 31, options, form);
  }
}

TEST_CASE("wgmma products of signed and unsigned bytes keep every sign") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms)
    for (const DType a : {dtypes::int8, dtypes::uint8})
      for (const DType b : {dtypes::int8, dtypes::uint8}) check_ss(a, b, 70, 140, 200, options, form);
}

TEST_CASE("More tiles than blocks, and more stages than the ring, wrap around") {
  Options options;
  options.out = dtypes::int32;
  check_ss(dtypes::int8, dtypes::int8, 300, 300, 130, options, gemm::kNarrowTile128, 2);
  check_ss(dtypes::int8, dtypes::int8, 300, 150, 128 * 7 + 5, options, gemm::kNarrowTile128, 1);
  check_ss(dtypes::int8, dtypes::int8, 600, 520, 300, options, gemm::kWideTile256, 2);
  check_ss(dtypes::int8, dtypes::int8, 520, 300, 128 * 6, options, gemm::kWideTile256, 4);
}

TEST_CASE("wgmma products of bits equal int64 sums of their numbers") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms)
    for (const DType a : {dtypes::bint1, dtypes::int1})
      for (const DType b : {dtypes::bint1, dtypes::int1}) {
        check_ss(a, b, 70, 140, 1024, options, form);
        check_ss(a, b, 130, 9, 2050, options, form);
        check_ss(a, b, 3, 3, 77, options, form);
      }
  check_ss(dtypes::bint1, dtypes::bint1, 300, 200, 3000, options, gemm::kNarrowTile128, 2);
  check_ss(dtypes::bint1, dtypes::bint1, 520, 270, 1500, options, gemm::kWideTile256, 2);
}

TEST_CASE("The epilogue of wgmma scales, adds and rounds as numerics.md says") {
  for (const DType type : {dtypes::int8, dtypes::bint1}) {
    for (const DType out : {dtypes::fp32, dtypes::bf16}) {
      for (int variant = 0; variant < 8; ++variant) {
        Options options;
        options.out = out;
        options.scale_rows = variant != 1;
        options.scale_columns = variant != 2;
        options.scale_tensor = variant == 3;
        options.bias = variant % 2 == 0;
        options.accumulate = variant == 4 || variant == 7;
        options.stochastic = variant >= 5 && out == dtypes::bf16;
        options.extra_ldc = variant == 6 ? 3 : variant == 0 ? 8 : 0;
        check_ss(type, type, 67, 136 + variant % 3, 250, options, kForms[variant % 2]);
      }
    }
  }
}

TEST_CASE("Zero points and row_minus correct the sums of wgmma") {
  for (const DType type : {dtypes::int8, dtypes::uint8, dtypes::bint1, dtypes::int1}) {
    for (int variant = 1; variant < 8; ++variant) {
      Options options;
      options.zero_a = variant & 1;
      options.zero_b = variant & 2;
      options.row_minus = variant & 4;
      options.scale_tensor = variant == 3;
      options.scale_rows = true;
      if (variant == 4) {
        options.out = dtypes::int64;
        options.scale_rows = false;
      }
      check_ss(type, type, 66, 131, 190, options, gemm::kNarrowTile128);
    }
  }
}

TEST_CASE("Weights of every width and kind are unpacked in registers") {
  Options options;
  options.out = dtypes::int32;
  int turn = 0;
  for (const DType weight : {dtypes::int1, dtypes::bint1, dtypes::ternary, dtypes::int2, dtypes::int3, dtypes::int4,
                             dtypes::int5, dtypes::int6, dtypes::int7, dtypes::uint2, dtypes::uint3, dtypes::uint4,
                             dtypes::uint5, dtypes::uint6, dtypes::uint7}) {
    for (const DType activation : {dtypes::int8, dtypes::uint8}) {
      check_rs(activation, weight, 70, 75, 200, options, kForms[turn % 2]);
      ++turn;
    }
    check_rs(dtypes::int8, weight, 9, 66, 128, options, kForms[turn % 2]);
  }
}

TEST_CASE("Products with weights in registers equal int64 sums at the edges of tiles") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms) {
    check_rs(dtypes::int8, dtypes::int4, 1, 1, 1, options, form);
    check_rs(dtypes::int8, dtypes::int3, 129, 129, 129, options, form);
    check_rs(dtypes::uint8, dtypes::bint1, 257, 65, 300, options, form);
    check_rs(dtypes::int8, dtypes::int7, 8, 260, 640, options, form, 2);
  }
  check_rs(dtypes::int8, dtypes::ternary, 300, 300, 900, options, gemm::kNarrowTile128, 2);
  check_rs(dtypes::int8, dtypes::int4, 300, 600, 700, options, gemm::kWideTile256, 2);
}

TEST_CASE("The epilogue of weights in registers turns the tile and corrects zero points") {
  for (const DType weight : {dtypes::int4, dtypes::bint1, dtypes::uint3}) {
    for (int variant = 0; variant < 8; ++variant) {
      Options options;
      options.out = variant % 2 == 0 ? dtypes::bf16 : dtypes::fp32;
      options.scale_rows = options.scale_columns = true;
      options.zero_a = variant & 1;
      options.zero_b = variant & 2;
      options.bias = variant & 4;
      options.accumulate = variant == 5;
      options.row_minus = variant == 6;
      options.extra_ldc = variant == 7 ? 5 : 0;
      check_rs(variant % 3 == 0 ? dtypes::uint8 : dtypes::int8, weight, 37, 72 + variant, 140, options,
               gemm::kNarrowTile128);
    }
  }
}

TEST_CASE("wgmma rows take what TMA can read and leave the rest") {
  GemmArgs args;
  args.m = args.n = 512;
  args.k = 1024;
  args.a = {nullptr, dtypes::int8, layouts::canonical, 1024, false, {}};
  args.b = args.a;
  args.ldc = 512;
  const auto bytes = [&] { return gemm_impl::gemm_s8_s8_wgmma_supports(args); };
  CHECK(bytes());
  CHECK_FALSE(gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.a.stride = 1032;
  CHECK_FALSE(bytes());
  args.a.stride = 1024;
  args.a.data = reinterpret_cast<const void*>(uintptr_t{8});
  CHECK_FALSE(bytes());
  args.a.data = nullptr;
  args.a.k_major = true;
  CHECK_FALSE(bytes());
  args.a.k_major = false;
  args.k = 131072;  // 128 * 128 * k = 2^31
  CHECK_FALSE(bytes());
  args.k = 131071;
  CHECK(bytes());
  args.a.dtype = args.b.dtype = dtypes::uint8;
  CHECK_FALSE(bytes());
  args.k = 33025;
  CHECK(bytes());
  args.k = 33026;
  CHECK_FALSE(bytes());
  args.k = 0;
  CHECK_FALSE(bytes());
  args.k = 1024;
  args.a.dtype = dtypes::int7;
  CHECK_FALSE(bytes());
  args.a.dtype = args.b.dtype = dtypes::bint1;
  CHECK(gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.k = 1020;  // four bits behind k lie in the last byte
  CHECK_FALSE(gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.k = 1016;
  CHECK(gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.c_dtype = dtypes::fp64;
  CHECK_FALSE(gemm_impl::gemm_b1_b1_wgmma_supports(args));
}

TEST_CASE("Large products take wide tiles, small ones narrow tiles") {
  CHECK(gemm::choose_form(8192, 4096, 4096).columns == 256);
  CHECK(gemm::choose_form(8192, 8192, 8192).columns == 256);
  CHECK(gemm::choose_form(128, 128, 4096).columns == 128);
  CHECK(gemm::choose_form(100, 10, 784).columns == 128);
}

}  // namespace
}  // namespace bitgrad::cuda
