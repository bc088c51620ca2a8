// Sum tables: the kernels of family gemm that take them. Float rows are compared bit for bit with the definition of
// their order, written out here; integer rows with exact sums.
#include <cstdint>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm_float_problem.h"
#include "support/catch.h"
#include "support/gemm_reference.h"
#include "support/shape_count.h"
#include "support/strict_bits.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Groups {
  DType dtype;
  int64_t codes, groups;
};
const Groups kGroups[] = {
    {dtypes::bint1, 6, 7}, {dtypes::ternary, 4, 6}, {dtypes::int1, 6, 7}, {dtypes::int2, 3, 7}, {dtypes::uint2, 3, 7}};

// Sums of t = a * number in the order of docs/numerics.md section 4.
std::vector<float> table_sums(const Problem& problem, const Groups& g) {
  const bool by_k = problem.fold && !problem.scale_by_n();
  std::vector<float> sums;
  for (int64_t i = 0; i < problem.m; ++i) {
    std::vector<float> a;
    for (int64_t t = 0; t < problem.k; ++t)
      a.push_back(by_k ? problem.a_at(i, t) * problem.b_scale(0, t) : problem.a_at(i, t));
    for (int64_t j = 0; j < problem.n; ++j) {
      float sum = 0, pass = 0, group = 0;
      for (int64_t t = 0; t < problem.k; ++t) {
        const float term = a[static_cast<size_t>(t)] * problem.b_number(j, t);
        group = t % g.codes == 0 ? term : group + term;
        if ((t + 1) % g.codes != 0 && t + 1 != problem.k) continue;
        const bool first_of_pass = t / g.codes % g.groups == 0;
        pass = first_of_pass ? group : pass + group;
        if ((t + 1) % (g.codes * g.groups) != 0 && t + 1 != problem.k) continue;
        sum = t < g.codes * g.groups ? pass : sum + pass;
      }
      sums.push_back(problem.fold && problem.scale_by_n() ? sum * problem.b_scale(j, 0) : sum);
    }
  }
  return sums;
}

std::vector<const GemmKernel*> table_rows(SumOrder order) {
  std::vector<const GemmKernel*> rows;
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.name.find("_table_") != std::string_view::npos && kernel.order == order && runs_here(kernel))
      rows.push_back(&kernel);
  return rows;
}

void check_rows(const Problem& problem, const Groups& g) {
  const std::vector<uint8_t> expected = problem.finished(table_sums(problem, g));
  for (const GemmKernel* kernel : table_rows(SumOrder::kTable)) {
    INFO(kernel->name << " " << problem.a.dtype << (problem.a_k_major ? " k-major" : "") << " x " << problem.b.dtype
                      << (problem.b_k_major ? " k-major" : "") << " to " << problem.c_dtype << " m " << problem.m
                      << " n " << problem.n << " k " << problem.k);
    REQUIRE(kernel->supports(problem.args(nullptr)));
    CHECK((run_row(*kernel, problem) == expected));
  }
}

constexpr bool kOrders[][2] = {{false, true}, {false, false}, {true, true}, {true, false}};

class Threads {
 public:
  explicit Threads(int n) : old_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(old_); }

 private:
  int old_;
};

}  // namespace

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("float sum tables give the bits of their order at every edge of lines, columns, groups and passes", "[cpu]") {
  std::mt19937 rng(1);
  const int64_t heights[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33};
  const int64_t widths[] = {0, 1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130};
  const int64_t depths[] = {0, 1, 3, 4, 5, 6, 7, 11, 12, 13, 21, 23, 24, 25, 41, 42, 43, 48, 63, 64, 100, 251, 253};
  size_t count = 0;
  for (const int64_t m : heights) {
    for (const int64_t n : widths) {
      for (const Groups& g : kGroups) {
        const bool* order = kOrders[rng() % 4];
        Problem problem(dtypes::fp32, order[0], g.dtype, order[1], m, n, depths[rng() % std::size(depths)], rng);
        problem.accumulate = count % 3 == 0;
        if (count % 5 == 0) problem.add_bias(rng);
        check_rows(problem, g);
        ++count;
      }
    }
  }
  for (const Groups& g : kGroups)
    for (const int64_t k : depths) check_rows(Problem(dtypes::fp32, false, g.dtype, true, 3, 66, k, rng), g);
  // Columns whose offsets are made together.
  for (const Groups& g : kGroups)
    for (const int64_t n : {129, 160, 191, 193, 255, 256, 257, 319, 320, 321, 450, 515})
      check_rows(Problem(dtypes::fp32, true, g.dtype, true, 2, n, depths[rng() % std::size(depths)], rng), g);
}

TEST_CASE("float sum tables read every dtype of A, with scales, in both orders", "[cpu]") {
  std::mt19937 rng(2);
  for (const DType dtype : all_dtypes()) {
    if (dtype == dtypes::fp64) continue;
    for (const bool* order : kOrders) {
      Problem problem(dtype, order[0], dtypes::bint1, order[1], 19, 37, 90, rng);
      // Along k, else the product of two integers would be no float product.
      problem.a.add_parameters("offset", 1, order[0] ? 1 : 0, 1, order[0] ? 0 : 1, rng);
      check_rows(problem, kGroups[0]);
    }
  }
}

TEST_CASE("float sum tables fold B's scale into A or onto the sum, and write bf16 with every epilogue", "[cpu]") {
  std::mt19937 rng(3);
  const RandomStream stream(7, Purpose::kGradAccumulate, 11, 3);
  for (const Groups& g : kGroups) {
    for (const bool* order : kOrders) {
      for (int form = 0; form < 3; ++form) {
        Problem problem(dtypes::fp32, order[0], g.dtype, order[1], 21, 79, 300, rng);
        const bool by_row = form == 1;
        problem.b.add_parameters("scale", 1, form != 0 && by_row ? 1 : 0, 1, form != 0 && !by_row ? 1 : 0, rng);
        problem.fold = true;
        problem.accumulate = form == 1;
        if (form != 0) problem.add_bias(rng);
        check_rows(problem, g);
        problem.c_dtype = dtypes::bf16;
        check_rows(problem, g);
        problem.sr = &stream;
        check_rows(problem, g);
      }
    }
  }
}

TEST_CASE("float sum tables keep their bits over blocks of rows, columns and depth, for any number of threads",
          "[cpu]") {
  std::mt19937 rng(4);
  for (const Groups& g : {kGroups[0], kGroups[1]}) {
    Problem problem(dtypes::fp32, g.codes == 6, g.dtype, true, 150, 4200, 520, rng);
    problem.accumulate = true;
    std::vector<uint8_t> expected;
    for (const GemmKernel* kernel : table_rows(SumOrder::kTable)) {
      if (kernel->needs == isa::kScalar) continue;
      for (const int threads : {1, 2, 4}) {
        INFO(kernel->name << " threads " << threads);
        const Threads use(threads);
        reset_memory_peaks();
        const std::vector<uint8_t> c = run_row(*kernel, problem);
        CHECK(memory_peak_by_kind()[MemoryKind::kWorkspace] <= threads * (int64_t{1} << 20));
        if (expected.empty()) expected = c;
        CHECK((c == expected));
      }
    }
    // A corner of it against the definition.
    if (expected.empty()) continue;
    Problem part = problem;
    part.m = 2;
    const std::vector<uint8_t> rows = part.finished(table_sums(part, g));
    CHECK((std::equal(rows.begin(), rows.begin() + 2 * (4200 + 3) * 4, expected.begin())));
  }
}

TEST_CASE("float sum tables are within the error bound of fp32 sums", "[cpu]") {
  std::mt19937 rng(5);
  for (const Groups& g : kGroups) {
    const Problem problem(dtypes::fp32, false, g.dtype, true, 17, 70, 1000, rng);
    const std::vector<Problem::Exact> exact = problem.exact();
    for (const GemmKernel* kernel : table_rows(SumOrder::kTable)) {
      const std::vector<uint8_t> c = run_row(*kernel, problem);
      int64_t bad = 0;
      for (int64_t at = 0; at < problem.m * problem.n; ++at) {
        float y;
        std::memcpy(&y, &c[static_cast<size_t>(4 * (at / problem.n * (problem.n + problem.gap) + at % problem.n))], 4);
        const Problem::Exact& e = exact[static_cast<size_t>(at)];
        bad += !(std::fabs(static_cast<double>(y) - e.sum) <= e.bound);
      }
      INFO(kernel->name << " " << g.dtype);
      CHECK(bad == 0);
    }
  }
}

TEST_CASE("sum tables leave products of other dtypes and scales to others", "[cpu]") {
  std::mt19937 rng(6);
  DTypeInfo odd{"table_test_half", 2, DTypeKind::kInt, 0, 1, {}};
  for (const DType dtype : {dtypes::int3, dtypes::int8, dtypes::fp32, register_dtype(odd)}) {
    const Problem problem(dtypes::fp32, false, dtype, true, 16, 300, 40, rng);
    for (const GemmKernel* kernel : table_rows(SumOrder::kTable)) CHECK_FALSE(kernel->supports(problem.args(nullptr)));
    const Problem codes(dtypes::int8, false, dtype, true, 16, 300, 40, rng);
    for (const GemmKernel* kernel : table_rows(SumOrder::kExact)) CHECK_FALSE(kernel->supports(codes.args(nullptr)));
  }
  Problem scaled(dtypes::fp32, false, dtypes::bint1, true, 16, 300, 40, rng);
  scaled.b.add_parameters("scale", 1, 1, 1, 0, rng);
  for (const GemmKernel* kernel : table_rows(SumOrder::kTable)) CHECK_FALSE(kernel->supports(scaled.args(nullptr)));
  Problem zeros(dtypes::int8, false, dtypes::int2, true, 16, 300, 40, rng);
  zeros.b.add_parameters("zero", 1, 0, 1, 1, rng);
  for (const GemmKernel* kernel : table_rows(SumOrder::kExact)) CHECK_FALSE(kernel->supports(zeros.args(nullptr)));
}

TEST_CASE("in strict mode the order is one of dtypes and shape, on every instruction set", "[cpu]") {
  std::mt19937 rng(7);
  const IsaLevel before = isa_cap();
  const StrictBits strict;
  for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (level > before) continue;
    set_isa_cap(level);
    const auto order = [&](DType a, DType b, int64_t m, int64_t n, bool folded) {
      Problem problem(a, false, b, true, m, n, 60, rng);
      if (folded) problem.b.add_parameters("scale", 1, 1, 1, 0, rng);
      problem.fold = folded;
      return select_gemm(problem.args(nullptr)).order;
    };
    CHECK(order(dtypes::fp32, dtypes::bint1, 8, 256, false) == SumOrder::kTable);
    CHECK(order(dtypes::bf16, dtypes::ternary, 64, 300, true) == SumOrder::kTable);
    CHECK(order(dtypes::fp32, dtypes::int2, 64, 300, false) == SumOrder::kTable);
    CHECK(order(dtypes::fp32, dtypes::bint1, 7, 256, false) == SumOrder::kChain512);
    CHECK(order(dtypes::fp32, dtypes::bint1, 8, 255, false) == SumOrder::kChain512);
    CHECK(order(dtypes::fp32, dtypes::int4, 64, 300, false) == SumOrder::kChain512);
    CHECK(order(dtypes::int8, dtypes::bint1, 64, 300, false) == SumOrder::kExact);
  }
  set_isa_cap(before);
}

namespace {

// One integer product with everything that it points to.
struct IntCase {
  GemmArgs args;
  CodeMatrix a, b;
  std::vector<float> scale_a, scale_b, bias;
  std::vector<int64_t> row_minus;
  RandomStream stream{7, Purpose::kGradAccumulate, 11, 3};
};

void make_case(Rng& rng, IntCase& t, DType da, DType db, int64_t m, int64_t n, int64_t k) {
  const bool ak = uniform_int(rng, 0, 1) == 0, bk = uniform_int(rng, 0, 2) != 0;
  GemmArgs& g = t.args;
  g.m = m, g.n = n, g.k = k;
  t.a = random_codes(rng, da, ak ? k : m, ak ? m : k);
  t.b = random_codes(rng, db, bk ? k : n, bk ? n : k);
  g.a = t.a.operand(ak);
  g.b = t.b.operand(bk);
  constexpr DType kOut[] = {dtypes::fp32, dtypes::fp32, dtypes::bf16, dtypes::int32, dtypes::int64, dtypes::fp64};
  g.c_dtype = kOut[uniform_int(rng, 0, 5)];
  g.ldc = n + uniform_int(rng, 0, 5);
  if (uniform_int(rng, 0, 3) == 0) {
    for (int64_t i = 0; i <= m; ++i) t.row_minus.push_back(uniform_int(rng, -100000, 100000));
    g.row_minus = t.row_minus.data();
  }
  if (g.c_dtype == dtypes::int32 || g.c_dtype == dtypes::int64) return;
  const auto scales = [&](GemmOperand& x, int64_t free, std::vector<float>& list) {
    const int64_t form = uniform_int(rng, 0, 2), count = form == 1 ? 1 : std::max<int64_t>(free, 1);
    if (form == 0) return;
    for (int64_t i = 0; i < count; ++i) list.push_back(std::ldexp(static_cast<float>(uniform_int(rng, 1, 999)), -12));
    x.scale.scale = list.data();
    if (form == 2) (x.k_major ? x.scale.col_step : x.scale.row_step) = 1;
  };
  scales(g.a, m, t.scale_a);
  scales(g.b, n, t.scale_b);
  g.accumulate = uniform_int(rng, 0, 2) == 0;
  if (g.c_dtype != dtypes::fp64 && uniform_int(rng, 0, 1) == 0) {
    for (int64_t j = 0; j <= n; ++j) t.bias.push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -5));
    g.bias = t.bias.data();
  }
  if (uniform_int(rng, 0, 1) == 0) g.sr = &t.stream;
}

void check_int_rows(Rng& rng, const IntCase& t) {
  const std::vector<int64_t> a = reference_codes(t.args.a, t.args.m, t.args.k),
                             b = reference_codes(t.args.b, t.args.n, t.args.k);
  for (const GemmKernel* kernel : table_rows(SumOrder::kExact)) {
    REQUIRE(kernel->supports(t.args));
    const int64_t wrong = wrong_elements(rng, *kernel, t.args, [&](int64_t i, int64_t j, uint64_t old) {
      const int64_t minus = t.args.row_minus == nullptr ? 0 : t.args.row_minus[i];
      const int64_t acc = reference_dot(a.data() + i * t.args.k, b.data() + j * t.args.k, t.args.k, minus);
      return reference_element(t.args, i, j, acc, old);
    });
    if (wrong != 0) {
      FAIL_CHECK(kernel->name << " on " << t.args.a.dtype << " x " << t.args.b.dtype << " m " << t.args.m << " n "
                              << t.args.n << " k " << t.args.k << " to " << t.args.c_dtype << ", k_major "
                              << t.args.a.k_major << t.args.b.k_major << ": wrong elements " << wrong);
    }
  }
}

}  // namespace

TEST_CASE("integer sum tables equal exact sums for every A of at most 8 bits and B of at most 2, on random shapes",
          "[cpu]") {
  Rng rng(8);
  std::vector<DType> left;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) left.push_back(d);
  constexpr int64_t kSides[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257};
  constexpr int64_t kDeep[] = {0, 1, 3, 4, 6, 7, 21, 24, 41, 42, 43, 84, 240, 241, 251, 252, 253, 504, 505, 2049};
  const int count = shape_count(800), threads = num_threads();
  for (int i = 0; i < count; ++i) {
    set_num_threads(i % 16 == 0 ? 2 : 1);
    IntCase t;
    const bool edge = i % 3 == 0;
    const auto side = [&] { return edge ? kSides[uniform_int(rng, 0, 16)] : log_uniform(rng, 300); };
    const DType a = left[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(left.size()) - 1))];
    const int64_t m = side(), n = side(), k = edge ? kDeep[uniform_int(rng, 0, 19)] : log_uniform(rng, 3000);
    make_case(rng, t, a, kGroups[i % 5].dtype, m, n, k);
    check_int_rows(rng, t);
  }
  set_num_threads(threads);
}

TEST_CASE("integer sum tables stay exact when every code is an end of its range, at any depth and over blocks",
          "[cpu]") {
  Rng rng(9);
  for (const DType da : {dtypes::int8, dtypes::uint8}) {
    for (const Groups& g : kGroups) {
      for (const int64_t k : {int64_t{250}, int64_t{1300}, int64_t{40001}}) {
        for (int ends = 0; ends < 4; ++ends) {
          IntCase t;
          make_case(rng, t, da, g.dtype, 3, 35, k);
          const auto fill = [](CodeMatrix& x, bool low) {
            const DTypeInfo& info = x.dtype.info();
            const uint32_t raw = static_cast<uint32_t>(encode_int(info, low ? info.qmin : info.qmax));
            for (int64_t r = 0; r < x.rows; ++r)
              for (int64_t c = 0; c < x.cols; ++c)
                store_raw(reinterpret_cast<uint8_t*>(x.words.data()) + r * x.stride, c, info.bits, raw);
          };
          fill(t.a, (ends & 1) != 0);
          fill(t.b, (ends & 2) != 0);
          check_int_rows(rng, t);
        }
      }
    }
  }
  IntCase wide;
  make_case(rng, wide, dtypes::int8, dtypes::bint1, 200, 4200, 700);
  reset_memory_peaks();
  check_int_rows(rng, wide);
  CHECK(memory_peak_by_kind()[MemoryKind::kWorkspace] <= num_threads() * (int64_t{1} << 20));
}

TEST_CASE("integer sum tables leave out what 16-bit upper parts cannot hold", "[cpu]") {
  Rng rng(10);
  IntCase t;
  make_case(rng, t, dtypes::int8, dtypes::bint1, 1, 2, 3);
  t.args.k = (int64_t{1} << 17) + 1;
  for (const GemmKernel* kernel : table_rows(SumOrder::kExact)) CHECK_FALSE(kernel->supports(t.args));
}
