// The integer rows of the tile unit, around emulated tiles and on the machine where it has them, against sums of 128
// bits, element by element, with ==. BITGRAD_TEST_SHAPES sets the number of random shapes.
#include <tuple>
#include <utility>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "emulation/amx/tiles.h"
#include "kernels/gemm_amx_kernels.h"
#include "support/catch.h"
#include "support/gemm_reference.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::amx_kernels;
using test::CodeMatrix;
using test::Rng;
using test::uniform_int;

struct Shape {
  int64_t m, n, k;
};
// Half at the edges of tiles, blocks, words and steps, or 0; the others log-uniform.
Shape random_shape(Rng& rng) {
  constexpr int64_t kSides[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 96, 97, 128, 130};
  constexpr int64_t kDepths[] = {0,  1,   3,   4,   15,  16,  17,  31,  32,  33,  63,  64,   65,   95,   96,
                                 97, 127, 128, 129, 192, 255, 256, 257, 639, 640, 641, 1023, 1024, 1025, 1090};
  const auto edge = [&](const auto& list) {
    return list[uniform_int(rng, 0, static_cast<int64_t>(std::size(list)) - 1)];
  };
  if (uniform_int(rng, 0, 1) == 0) return {edge(kSides), edge(kSides), edge(kDepths)};
  return {test::log_uniform(rng, 200), test::log_uniform(rng, 200), test::log_uniform(rng, 2500)};
}

uint64_t noise() {
  static Rng rng(99);
  return rng();
}

struct Case {
  GemmArgs args;
  CodeMatrix a, b;
  std::vector<float> scale_a, scale_b, bias;
  std::vector<int64_t> row_minus;
  RandomStream stream{7, Purpose::kGradAccumulate, 11, 3};

  Case(Rng& rng, DType da, DType db, Shape shape, bool b_k_major) {
    const bool a_k_major = uniform_int(rng, 0, 2) == 0;
    a = a_k_major ? test::random_codes(rng, da, shape.k, shape.m) : test::random_codes(rng, da, shape.m, shape.k);
    b = b_k_major ? test::random_codes(rng, db, shape.k, shape.n) : test::random_codes(rng, db, shape.n, shape.k);
    args.m = shape.m;
    args.n = shape.n;
    args.k = shape.k;
    args.a = a.operand(a_k_major);
    args.b = b.operand(b_k_major);
    constexpr DType kOut[] = {dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::int32, dtypes::int64, dtypes::fp64};
    args.c_dtype = kOut[uniform_int(rng, 0, 5)];
    args.ldc = shape.n + uniform_int(rng, 0, 5);
    if (args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16) add_scales(rng);
    if (uniform_int(rng, 0, 5) == 0) {
      const int64_t max = uniform_int(rng, 0, 1) == 0 ? INT64_MAX : 100000;
      for (int64_t i = 0; i <= shape.m; ++i) row_minus.push_back(uniform_int(rng, -max, max));
      args.row_minus = row_minus.data();
    }
  }

  void add_scales(Rng& rng) {
    add_scale(rng, args.a, args.m, scale_a);
    add_scale(rng, args.b, args.n, scale_b);
    args.accumulate = uniform_int(rng, 0, 2) == 0;
    if (uniform_int(rng, 0, 1) == 0) {
      for (int64_t j = 0; j <= args.n; ++j)
        bias.push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -5));
      args.bias = bias.data();
    }
    if (uniform_int(rng, 0, 1) == 0) args.sr = &stream;
  }
  static void add_scale(Rng& rng, GemmOperand& x, int64_t free, std::vector<float>& scale) {
    const int64_t kind = uniform_int(rng, 0, 2);
    if (kind == 0) return;
    const int64_t count = kind == 1 ? 1 : std::max<int64_t>(free, 1);
    for (int64_t i = 0; i < count; ++i) scale.push_back(std::ldexp(static_cast<float>(uniform_int(rng, 1, 999)), -12));
    x.scale.scale = scale.data();
    if (kind == 2) (x.k_major ? x.scale.col_step : x.scale.row_step) = 1;
  }
};

// Runs every row that takes the case; returns how many did.
int check(Rng& rng, const Case& t, const std::vector<GemmKernel>& rows) {
  const std::vector<int64_t> a = test::reference_codes(t.args.a, t.args.m, t.args.k);
  const std::vector<int64_t> b = test::reference_codes(t.args.b, t.args.n, t.args.k);
  int ran = 0;
  for (const GemmKernel& kernel : rows) {
    if (!kernel.usable(t.args)) continue;
    GemmArgs args = t.args;
    std::vector<uint64_t> derived;
    test::derive_noisy(args.b, kernel.b_layout, args.n, args.k, derived, &noise);
    const int64_t wrong = test::wrong_elements(rng, kernel, args, [&](int64_t i, int64_t j, uint64_t old) {
      const int64_t minus = args.row_minus == nullptr ? 0 : args.row_minus[i];
      const int64_t acc = test::reference_dot(a.data() + i * args.k, b.data() + j * args.k, args.k, minus);
      return test::reference_element(args, i, j, acc, old);
    });
    ++ran;
    if (wrong != 0) {
      FAIL_CHECK(kernel.name << " on " << args.a.dtype << " x " << args.b.dtype << " m " << args.m << " n " << args.n
                             << " k " << args.k << " to " << args.c_dtype << ", k_major " << args.a.k_major
                             << args.b.k_major << ": wrong elements " << wrong);
    }
  }
  return ran;
}

// [cpu]: rows of the CPU
TEST_CASE("integer rows of the tile unit equal the exact reference on random shapes of every pair of small dtypes",
          "[cpu]") {
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  // What networks use comes as often as all the rest.
  constexpr std::pair<DType, DType> kCommon[] = {
      {dtypes::int8, dtypes::bint1},  {dtypes::bint1, dtypes::bint1}, {dtypes::ternary, dtypes::bint1},
      {dtypes::int8, dtypes::int2},   {dtypes::int8, dtypes::int4},   {dtypes::int8, dtypes::int8},
      {dtypes::uint8, dtypes::uint4}, {dtypes::uint8, dtypes::bint1}, {dtypes::uint8, dtypes::uint8}};
  const std::vector<GemmKernel> rows = amx_kernels(SumOrder::kExact);
  REQUIRE(rows.size() >= 3);
  Rng rng(1);
  const int count = test::shape_count(400), threads = num_threads();
  int ran = 0;
  for (int i = 0; i < count; ++i) {
    set_num_threads(i % 16 == 0 ? 2 : 1);
    const size_t at = static_cast<size_t>(i);
    const auto [da, db] = i % 2 == 0 ? kCommon[at / 2 % std::size(kCommon)]
                                     : std::pair(list[at % list.size()], list[at / list.size() % list.size()]);
    ran += check(rng, Case(rng, da, db, random_shape(rng), uniform_int(rng, 0, 2) == 0), rows);
  }
  set_num_threads(threads);
  CHECK(ran > count);
}

TEST_CASE("products whose k or columns come in several pieces are exact too", "[cpu]") {
  const std::vector<GemmKernel> rows = amx_kernels(SumOrder::kExact);
  Rng rng(2);
  // k beyond one pass (16384), with an odd word at the end; more columns than are packed at a time.
  for (const Shape& shape : {Shape{33, 40, 16500}, Shape{5, 33, 33000}, Shape{40, 1100, 3000}}) {
    CHECK(check(rng, Case(rng, dtypes::int8, dtypes::bint1, shape, false), rows) >= 2);
    CHECK(check(rng, Case(rng, dtypes::uint8, dtypes::int4, shape, true), rows) >= 1);
  }
  CHECK(check(rng, Case(rng, dtypes::int8, dtypes::int8, {1060, 40, 1000}, false), rows) >= 2);  // rows in two blocks
}

TEST_CASE("codes at the ends of their range stay exact, and sums beyond int32 are left to other rows", "[cpu]") {
  Rng rng(3);
  for (const auto& [da, db, k] :
       {std::tuple(dtypes::int8, dtypes::int8, int64_t{4099}), std::tuple(dtypes::uint8, dtypes::uint8, int64_t{4099}),
        std::tuple(dtypes::int8, dtypes::int4, int64_t{1000})}) {
    for (const bool low_a : {false, true}) {
      for (const bool low_b : {false, true}) {
        Case t(rng, da, db, {18, 34, k}, false);
        for (auto& [matrix, low] : {std::pair(&t.a, low_a), std::pair(&t.b, low_b)}) {
          const DTypeInfo& info = matrix->dtype.info();
          const auto raw = static_cast<uint32_t>(encode_int(info, low ? info.qmin : info.qmax));
          for (int64_t r = 0; r < matrix->rows; ++r)
            for (int64_t c = 0; c < matrix->cols; ++c)
              store_raw(reinterpret_cast<uint8_t*>(matrix->words.data()) + r * matrix->stride, c, info.bits, raw);
        }
        CHECK(check(rng, t, amx_kernels(SumOrder::kExact)) >= 2);
      }
    }
  }
  GemmArgs args;
  args.m = args.n = 1;
  args.c_dtype = dtypes::int64;
  args.a.dtype = args.b.dtype = dtypes::int8;
  args.k = 131071;
  CHECK(gemm_detail::amx_int_supports(args));
  args.k = 131072;
  CHECK_FALSE(gemm_detail::amx_int_supports(args));
  args.a.dtype = args.b.dtype = dtypes::uint8;
  args.k = 33026;
  CHECK_FALSE(gemm_detail::amx_int_supports(args));
}

TEST_CASE("zero points, groups, offsets and wrong layouts' dtypes are left to other rows", "[cpu]") {
  const int32_t zero[1] = {1};
  const float scale[8] = {};
  GemmArgs args;
  args.m = args.n = 4;
  args.k = 64;
  args.a.dtype = dtypes::int8;
  args.b.dtype = dtypes::int4;
  const auto takers = [&] {
    int count = 0;
    for (const GemmKernel& kernel : gemm_kernels()) count += (kernel.needs & isa::kAmx) != 0 && kernel.supports(args);
    return count;
  };
  CHECK(takers() == 2);  // tiles16 and packed in the call
  args.b.k_major = true;
  CHECK(takers() == 1);
  args.b.k_major = false;
  args.b.dtype = dtypes::int5;
  CHECK(takers() == 1);
  args.b.dtype = dtypes::bint1;
  CHECK(takers() == 2);  // panels16 and packed
  for (GemmOperand* x : {&args.a, &args.b}) {
    x->scale.zero = zero;
    CHECK(takers() == 0);
    x->scale = {};
    x->scale.offset = scale;
    CHECK(takers() == 0);
    x->scale = {};
  }
  args.b.scale = {scale, nullptr, nullptr, 2, 1, 1, 32};
  CHECK(takers() == 0);
}

TEST_CASE("tiles are configured at every entry, released at the end, and stored at least every 32 steps", "[cpu]") {
  Rng rng(4);
  const int threads = num_threads();
  set_num_threads(1);
  for (const GemmKernel& kernel : amx_kernels(SumOrder::kExact)) {
    Case t(rng, dtypes::int8, dtypes::bint1, {70, 70, 6000}, false);
    GemmArgs args = t.args;
    std::vector<uint64_t> derived;
    if (!kernel.supports(args) || kernel.needs != isa::kScalar) continue;
    test::derive_noisy(args.b, kernel.b_layout, args.n, args.k, derived, &noise);
    std::vector<uint8_t> c = test::old_c(rng, args);
    args.c = c.data();
    gemm_detail::emulated::release();
    kernel.run(args);
    const gemm_detail::emulated::Account account = gemm_detail::emulated::account();
    INFO(kernel.name);
    CHECK_FALSE(account.configured);
    CHECK(account.products > 4 * 90);
    CHECK(account.most_products_unstored <= 4 * 32);
  }
  set_num_threads(threads);
}

TEST_CASE("integer rows of the tile unit do not depend on the number of threads", "[cpu]") {
  const int threads = num_threads();
  Rng rng(5);
  Case t(rng, dtypes::int4, dtypes::bint1, {300, 700, 1500}, false);
  for (const GemmKernel& kernel : amx_kernels(SumOrder::kExact)) {
    GemmArgs args = t.args;
    args.accumulate = false;
    args.sr = nullptr;
    args.c_dtype = dtypes::fp32;
    args.row_minus = nullptr;
    std::vector<uint64_t> derived;
    if (!kernel.supports(args)) continue;
    test::derive_noisy(args.b, kernel.b_layout, args.n, args.k, derived, &noise);
    std::vector<float> first(static_cast<size_t>(300 * args.ldc)), second = first;
    args.c = first.data();
    set_num_threads(1);
    kernel.run(args);
    args.c = second.data();
    set_num_threads(3);
    kernel.run(args);
    CHECK((first == second));
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace bitgrad
