// Every integer kernel of family gemm against sums of 128 bits, element by element, with ==. BITGRAD_TEST_SHAPES sets
// the number of random shapes per kind of product (the rows of one kind share a shape).
#include <string>
#include <utility>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/layout.h"
#include "support/catch.h"
#include "support/gemm_int_problem.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::Case;
using test::CodeMatrix;
using test::derive;
using test::GemmShape;
using test::is_vnni64;
using test::left_out;
using test::make_case;
using test::random_shape;
using test::Rng;
using test::shape_count;
using test::wrong_elements;

const GemmKernel& kernel_named(const std::string& name) {
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.name == name) return kernel;
  FAIL("no row " << name);
  return gemm_kernels()[0];
}

// All rows of `names` that the machine has, on one random case.
void check_case(Rng& rng, DType da, DType db, GemmShape shape, bool general, const std::vector<std::string>& names) {
  Case t;
  make_case(rng, t, da, db, shape, general);
  const std::vector<int64_t> a = test::reference_codes(t.canonical_a, shape.m, shape.k);
  const std::vector<int64_t> b = test::reference_codes(t.canonical_b, shape.n, shape.k);
  for (const std::string& name : names) {
    const GemmKernel& kernel = kernel_named(name);
    if ((kernel.needs & ~cpu_isa()) != 0 || left_out(kernel, t.args)) continue;
    GemmArgs args = t.args;
    derive(rng, args.a, kernel.a_layout, shape.m, shape.k, t.derived_a);
    derive(rng, args.b, kernel.b_layout, shape.n, shape.k, t.derived_b);
    const bool usable = kernel.usable(args);
    const int64_t wrong = usable ? wrong_elements(rng, kernel, args, a, b) : -1;
    if (wrong != 0) {
      FAIL_CHECK(name << " on " << da << " x " << db << " m " << shape.m << " n " << shape.n << " k " << shape.k
                      << " to " << args.c_dtype << ", k_major " << args.a.k_major << args.b.k_major
                      << ": wrong elements " << wrong << " (-1: not usable)");
    }
  }
}

void check_random_shapes(uint64_t seed, int fallback, bool general, const std::vector<std::pair<DType, DType>>& dtypes,
                         const std::vector<std::string>& names) {
  Rng rng(seed);
  const int count = shape_count(fallback), threads = num_threads();
  for (int i = 0; i < count; ++i) {
    // Threads that wait for the next small product burn more time than the products.
    set_num_threads(i % 16 == 0 ? 2 : 1);
    const auto [da, db] = dtypes[static_cast<size_t>(i) % dtypes.size()];
    check_case(rng, da, db, random_shape(rng), general, names);
  }
  set_num_threads(threads);
  CHECK(count > 0);
}

// All that the list has, so that a new row is tested at once.
std::vector<std::string> bit_rows(const std::string& kind) {
  const std::string stem = "gemm_" + kind + "_i32_";
  std::vector<std::string> names;
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.name.substr(0, stem.size()) == stem) names.emplace_back(kernel.name);
  REQUIRE(names.size() >= 3);
  return names;
}
// Every row of codes in bytes, and the scalar reference. Rows of the tile unit take fewer products: gemm_amx_test.cpp.
std::vector<std::string> byte_rows() {
  std::vector<std::string> names{"gemm_int_scalar"};
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.name.starts_with("gemm_s8_s8_i32_") && (kernel.needs & isa::kAmx) == 0 &&
        kernel.name.find("_groups_") == std::string_view::npos)  // those have tests of their own
      names.emplace_back(kernel.name);
  REQUIRE(names.size() >= 9);
  return names;
}

std::vector<DType> small_integer_dtypes() {
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  return list;
}
std::vector<std::pair<DType, DType>> all_pairs(const std::vector<DType>& list) {
  std::vector<std::pair<DType, DType>> pairs;
  for (const DType a : list)
    for (const DType b : list) pairs.emplace_back(a, b);
  return pairs;
}

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("bint1 x bint1 rows equal the exact reference on random shapes", "[cpu]") {
  check_random_shapes(1, 1500, false, {{dtypes::bint1, dtypes::bint1}}, bit_rows("b1_b1"));
}
TEST_CASE("ternary x bint1 rows equal the exact reference on random shapes", "[cpu]") {
  check_random_shapes(2, 1500, false, {{dtypes::ternary, dtypes::bint1}}, bit_rows("t_b1"));
}
TEST_CASE("ternary x ternary rows equal the exact reference on random shapes", "[cpu]") {
  check_random_shapes(3, 1500, false, {{dtypes::ternary, dtypes::ternary}}, bit_rows("t_t"));
}
TEST_CASE("int2 x bint1 and uint2 x bint1 rows of bit planes equal the exact reference on random shapes", "[cpu]") {
  check_random_shapes(6, 700, false, {{dtypes::int2, dtypes::bint1}}, bit_rows("i2_b1"));
  check_random_shapes(7, 700, false, {{dtypes::uint2, dtypes::bint1}}, bit_rows("u2_b1"));
}
TEST_CASE(
    "byte rows and the scalar reference are exact for every pair of small integer dtypes, zeros and orders of "
    "storage",
    "[cpu]") {
  check_random_shapes(4, 1500, true, all_pairs(small_integer_dtypes()), byte_rows());
}
TEST_CASE("byte rows are exact where k and the columns need several blocks", "[cpu]") {
  Rng rng(6);
  const std::pair<DType, DType> pairs[] = {{dtypes::int8, dtypes::int8},
                                           {dtypes::int8, dtypes::int4},
                                           {dtypes::uint4, dtypes::bint1},
                                           {dtypes::uint8, dtypes::int2}};
  for (const GemmShape shape : {GemmShape{131, 70, 5121}, GemmShape{3, 1100, 5200}, GemmShape{30, 66, 10300}}) {
    for (const auto& [da, db] : pairs)
      for (int i = 0; i < 2; ++i) check_case(rng, da, db, shape, true, byte_rows());
  }
}
TEST_CASE("the scalar reference is exact for every pair with int32 or int64", "[cpu]") {
  std::vector<DType> all = small_integer_dtypes();
  all.insert(all.end(), {dtypes::int32, dtypes::int64});
  std::vector<std::pair<DType, DType>> wide;
  for (const auto& [a, b] : all_pairs(all))
    if (!a.is_code() || !b.is_code()) wide.emplace_back(a, b);
  check_random_shapes(5, 150, true, wide, {"gemm_int_scalar"});
}

// Every code of m is the lowest or the highest of its dtype.
void fill(CodeMatrix& m, bool low) {
  const DTypeInfo& info = m.dtype.info();
  const uint32_t raw = static_cast<uint32_t>(encode_int(info, low ? info.qmin : info.qmax));
  for (int64_t r = 0; r < m.rows; ++r) {
    uint8_t* row = reinterpret_cast<uint8_t*>(m.words.data()) + r * m.stride;
    for (int64_t c = 0; c < m.cols; ++c) store_raw(row, c, info.bits, raw);
  }
}

// The largest sums that the codes can make, of either sign: byte counters and accumulators at their limits.
void check_ends(DType da, DType db, int64_t k, const std::vector<std::string>& names) {
  for (const bool low_a : {false, true}) {
    for (const bool low_b : {false, true}) {
      Rng rng(static_cast<uint64_t>(k));
      Case t;
      make_case(rng, t, da, db, {3, 35, k}, false);
      fill(t.a, low_a);
      fill(t.b, low_b);
      const std::vector<int64_t> a = test::reference_codes(t.canonical_a, 3, k);
      const std::vector<int64_t> b = test::reference_codes(t.canonical_b, 35, k);
      for (const std::string& name : names) {
        const GemmKernel& kernel = kernel_named(name);
        if (left_out(kernel, t.args) || !kernel.usable(t.args)) continue;
        GemmArgs args = t.args;
        derive(rng, args.a, kernel.a_layout, 3, k, t.derived_a);
        derive(rng, args.b, kernel.b_layout, 35, k, t.derived_b);
        INFO(name << " on " << da << " x " << db << ", k " << k);
        CHECK(wrong_elements(rng, kernel, args, a, b) == 0);
      }
    }
  }
}

TEST_CASE("codes at the ends of their range keep every integer row exact at every depth", "[cpu]") {
  for (const int64_t k : {int64_t{480}, int64_t{992}, int64_t{1024}, int64_t{1056}, int64_t{4099}}) {
    check_ends(dtypes::bint1, dtypes::bint1, k, bit_rows("b1_b1"));
    check_ends(dtypes::ternary, dtypes::bint1, k, bit_rows("t_b1"));
    check_ends(dtypes::ternary, dtypes::ternary, k, bit_rows("t_t"));
    check_ends(dtypes::int2, dtypes::bint1, k, bit_rows("i2_b1"));
    check_ends(dtypes::uint2, dtypes::bint1, k, bit_rows("u2_b1"));
  }
  for (const auto& [da, db] : all_pairs({dtypes::int8, dtypes::uint8, dtypes::bint1})) {
    check_ends(da, db, 1025, byte_rows());
    check_ends(da, db, 70001, byte_rows());  // beyond the limits of int32
  }
  for (const DType db : {dtypes::int2, dtypes::int4, dtypes::uint5, dtypes::int6, dtypes::uint7})
    for (const DType da : {dtypes::int8, dtypes::uint8}) check_ends(da, db, 1025, byte_rows());
}

TEST_CASE("rows of vnni64 refuse a depth at which sums of codes leave int32, and another row is planned", "[cpu]") {
  const struct {
    DType a, b;
    int64_t max;  // of k: floor((2^31 - 1) / (magnitude of a x magnitude of b))
  } limits[] = {{dtypes::int8, dtypes::int8, 131071},
                {dtypes::uint8, dtypes::int8, 65793},
                {dtypes::int8, dtypes::int4, 2097151},
                {dtypes::int8, dtypes::bint1, 16777215}};
  for (const auto& limit : limits) {
    for (const bool b_k_major : {false, true}) {
      int rows = 0;
      GemmArgs args;
      args.m = 3;
      args.n = args.ldc = 70;
      args.a.dtype = limit.a;
      args.b.dtype = limit.b;
      args.b.k_major = b_k_major;
      for (const std::string& name : byte_rows()) {
        const GemmKernel& kernel = kernel_named(name);
        if (!is_vnni64(kernel.b_layout) || left_out(kernel, args)) continue;
        ++rows;
        INFO(kernel.name << " on " << limit.a << " x " << limit.b);
        args.k = limit.max;
        CHECK(kernel.supports(args));
        args.k = limit.max + 1;
        CHECK_FALSE(kernel.supports(args));
      }
      CHECK(rows >= 2);
      CHECK_FALSE(is_vnni64(plan_gemm(args).b_layout));
    }
  }
}

TEST_CASE("zero points far outside the codes stay exact", "[cpu]") {
  for (const int32_t zero : {1 << 20, -(1 << 30), INT32_MIN}) {
    Rng rng(9);
    Case t;
    make_case(rng, t, dtypes::uint4, dtypes::int8, {5, 19, 77}, false);
    t.args.c_dtype = dtypes::fp32;
    t.zero_a = {zero};
    t.zero_b.assign(19, zero);
    t.args.a.scale = {nullptr, t.zero_a.data(), nullptr, 0, 0, 1, 1};
    t.args.b.scale = {nullptr, t.zero_b.data(), nullptr, 1, 0, 1, 1};
    const std::vector<int64_t> a = test::reference_codes(t.args.a, 5, 77), b = test::reference_codes(t.args.b, 19, 77);
    for (const std::string& name : byte_rows()) {
      const GemmKernel& kernel = kernel_named(name);
      GemmArgs args = t.args;
      derive(rng, args.b, kernel.b_layout, 19, 77, t.derived_b);
      if (kernel.usable(args)) CHECK(wrong_elements(rng, kernel, args, a, b) == 0);
    }
  }
}

TEST_CASE("row_minus is computed from the exact sums before they are scaled, and popcount rows do not support it",
          "[cpu]") {
  Rng rng(10);
  for (const int64_t minus : {int64_t{1} << 31, -(int64_t{1} << 40), INT64_MAX, INT64_MIN}) {
    for (const DType c : {dtypes::fp32, dtypes::bf16, dtypes::fp64, dtypes::int32, dtypes::int64}) {
      Case t;
      make_case(rng, t, dtypes::int8, dtypes::bint1, {7, 21, 700}, false);
      t.args.c_dtype = c;
      t.args.a.scale = t.args.b.scale = {};
      t.args.bias = nullptr;
      t.args.accumulate = c != dtypes::int32 && c != dtypes::int64;
      t.row_minus.assign(7, minus);
      t.row_minus[3] = 0;
      t.args.row_minus = t.row_minus.data();
      const std::vector<int64_t> a = test::reference_codes(t.args.a, 7, 700),
                                 b = test::reference_codes(t.args.b, 21, 700);
      for (const std::string& name : byte_rows()) {
        const GemmKernel& kernel = kernel_named(name);
        if ((kernel.needs & ~cpu_isa()) != 0 || left_out(kernel, t.args)) continue;
        INFO(name << " minus " << minus << " to " << c);
        GemmArgs args = t.args;
        derive(rng, args.b, kernel.b_layout, 21, 700, t.derived_b);
        REQUIRE(kernel.supports(args));
        CHECK(wrong_elements(rng, kernel, args, a, b) == 0);
      }
    }
  }
  Case bits;
  make_case(rng, bits, dtypes::bint1, dtypes::bint1, {7, 21, 700}, false);
  bits.row_minus.assign(7, 1);
  bits.args.row_minus = bits.row_minus.data();
  for (const std::string& name : bit_rows("b1_b1")) CHECK_FALSE(kernel_named(name).supports(bits.args));
}

TEST_CASE("an int32 output saturates and an fp64 output is not rounded to fp32", "[cpu]") {
  const int64_t big[2] = {int64_t{1} << 33, -(int64_t{1} << 33)};
  const int8_t one[8] = {1};
  GemmArgs args;
  args.m = 2;
  args.n = args.k = args.ldc = 1;
  args.a.data = big;
  args.a.dtype = dtypes::int64;
  args.a.stride = 8;
  args.b.data = one;
  args.b.dtype = dtypes::int8;
  args.b.stride = 8;
  int32_t c[2] = {};
  args.c = c;
  args.c_dtype = dtypes::int32;
  gemm(args);
  CHECK(c[0] == INT32_MAX);
  CHECK(c[1] == INT32_MIN);
  const int64_t odd[2] = {(int64_t{1} << 30) + 1, -1};
  double d[2] = {0.5, 0.5};
  args.a.data = odd;
  args.c = d;
  args.c_dtype = dtypes::fp64;
  args.accumulate = true;
  gemm(args);
  CHECK(d[0] == 1073741825.5);
  CHECK(d[1] == -0.5);
}

void check_threads(DType da, DType db, int64_t depth) {
  Rng rng(12);
  Case t;
  make_case(rng, t, da, db, {500, 530, depth}, true);
  t.args.c_dtype = dtypes::fp32;
  t.args.accumulate = false;
  t.args.row_minus = nullptr;  // sums beyond int32 take another way
  const int64_t k = t.args.k;
  for (const std::string& name : byte_rows()) {
    const GemmKernel& kernel = kernel_named(name);
    if (left_out(kernel, t.args)) continue;
    GemmArgs args = t.args;
    derive(rng, args.b, kernel.b_layout, 530, k, t.derived_b);
    if (!kernel.usable(args)) continue;
    std::vector<float> first(static_cast<size_t>(500 * t.args.ldc)), second = first;
    set_num_threads(1);
    args.c = first.data();
    reset_memory_peaks();
    kernel.run(args);
    const int64_t bytes = memory_peak_by_kind()[MemoryKind::kWorkspace];
    if (kernel.needs != isa::kScalar) CHECK(bytes <= int64_t{1} << 20);
    set_num_threads(3);
    args.c = second.data();
    kernel.run(args);
    CHECK((first == second));
  }
}

TEST_CASE("integer products do not depend on the number of threads and keep their scratch below 1 MiB a thread",
          "[cpu][bits]") {
  const int threads = num_threads();
  for (const int64_t k : {2100, 9000}) {
    check_threads(dtypes::int4, dtypes::uint8, k);
    check_threads(dtypes::int8, dtypes::int4, k);
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace bitgrad
