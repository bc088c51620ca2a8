// The float kernels of family gemm. Rows of order chain512 are compared bit for bit with the definition of the order,
// gaps of C included.
#include <cstdint>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm_float_problem.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// The rows with B in layout vnni64, where they take the product; returns how many did.
int check_panel_rows(const Problem& problem, const std::vector<uint8_t>& expected) {
  int count = 0;
  for (const GemmKernel* kernel : chain_kernels(layouts::vnni64)) {
    if (!kernel->supports(problem.args(nullptr))) continue;
    ++count;
    INFO(kernel->name << " " << problem.a.dtype << " x " << problem.b.dtype << " to " << problem.c_dtype << " m "
                      << problem.m << " n " << problem.n << " k " << problem.k << " group " << problem.b.map.col_group);
    CHECK((run_row(*kernel, problem) == expected));
  }
  return count;
}

void check_chain_rows(const Problem& problem) {
  const std::vector<uint8_t> expected = problem.finished(problem.chain_sums());
  for (const GemmKernel* kernel : chain_kernels()) {
    INFO(kernel->name << " " << problem.a.dtype << (problem.a_k_major ? " k-major" : "") << " x " << problem.b.dtype
                      << (problem.b_k_major ? " k-major" : "") << " to " << problem.c_dtype << " m " << problem.m
                      << " n " << problem.n << " k " << problem.k);
    REQUIRE(kernel->supports(problem.args(nullptr)));
    CHECK((run_row(*kernel, problem) == expected));
  }
  check_panel_rows(problem, expected);
}

// Rows of any order against the sum in double.
void check_within_bound(const GemmKernel& kernel, const Problem& problem) {
  INFO(kernel.name << " m " << problem.m << " n " << problem.n << " k " << problem.k);
  const std::vector<uint8_t> c = run_row(kernel, problem);
  const std::vector<Problem::Exact> exact = problem.exact();
  int64_t bad = 0;
  std::vector<uint8_t> rest = c;
  for (int64_t i = 0; i < problem.m; ++i) {
    for (int64_t j = 0; j < problem.n; ++j) {
      const auto at = static_cast<size_t>(4 * (i * (problem.n + problem.gap) + j));
      float y;
      std::memcpy(&y, &c[at], 4);
      std::memcpy(&rest[at], &problem.c_before[at], 4);
      const Problem::Exact& e = exact[static_cast<size_t>(i * problem.n + j)];
      bad += !(std::fabs(static_cast<double>(y) - e.sum) <= e.bound + 0x1p-149);
    }
  }
  CHECK(bad == 0);
  CHECK((rest == problem.c_before));  // nothing but C's elements was written
}

class Threads {
 public:
  explicit Threads(int n) : old_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(old_); }

 private:
  int old_;
};

constexpr bool kOrders[][2] = {{false, false}, {false, true}, {true, false}, {true, true}};

}  // namespace

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("chain512 rows give the bits of the definition at every edge of their tiles and panels", "[cpu]") {
  std::mt19937 rng(1);
  const int64_t sides[] = {0, 1, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49};
  const int64_t depths[] = {0, 1, 2, 3, 5, 64, 511, 512, 513, 1024, 1030};
  const DType types[] = {dtypes::fp32, dtypes::bint1, dtypes::int4, dtypes::bf16, dtypes::ternary, dtypes::int3};
  size_t count = 0;
  for (int64_t m : sides) {
    for (int64_t n : sides) {
      const bool* order = kOrders[count % 4];
      Problem problem(dtypes::fp32, order[0], types[count % 6], order[1], m, n, depths[count % 11], rng);
      problem.accumulate = count % 3 == 0;
      if (count % 5 == 0) problem.add_bias(rng);
      check_chain_rows(problem);
      ++count;
    }
  }
}

TEST_CASE("chain512 rows read every dtype on both sides in both orders", "[cpu]") {
  std::mt19937 rng(2);
  DTypeInfo info{"gemm_test_levels", 3, DTypeKind::kCodebook, 0, 0, {-1.5f, -0.5f, 0.0f, 0.25f, 3.0f}};
  const DType levels = register_dtype(info);
  for (const DType dtype : all_dtypes()) {
    if (dtype == dtypes::fp64) continue;
    for (const bool* order : kOrders) {
      check_chain_rows(Problem(dtypes::fp32, order[0], dtype, order[1], 13, 35, 520, rng));
      check_chain_rows(Problem(dtype, order[0], levels, order[1], 7, 18, 70, rng));
      check_chain_rows(Problem(dtype, order[0], dtypes::bf16, order[1], 3, 50, 9, rng));
    }
  }
}

TEST_CASE("chain512 rows apply scales, zero points and offsets of every granularity", "[cpu]") {
  std::mt19937 rng(3);
  struct Granularity {
    int64_t row_group, row_step, col_group, col_step;
  };
  const Granularity granularities[] = {{1, 0, 1, 0},  {1, 1, 1, 0},  {1, 0, 1, 1}, {1, 40, 16, 1}, {1, 9, 100, 1},
                                       {5, 1, 1, 40}, {1, 0, 32, 1}, {7, 1, 1, 0}, {1, 600, 1, 1}};
  for (const Granularity& g : granularities) {
    for (const char* kind : {"scale", "zero", "offset"}) {
      for (const bool* order : kOrders) {
        Problem problem(dtypes::fp32, order[0], dtypes::int4, order[1], 9, 37, 531, rng);
        problem.b.add_parameters(kind, g.row_group, g.row_step, g.col_group, g.col_step, rng);
        check_chain_rows(problem);
        for (const GemmKernel* kernel : chain_kernels()) check_within_bound(*kernel, problem);
        check_within_bound(gemm_kernel("gemm_f64_scalar"), problem);
        Problem both(dtypes::uint8, order[0], dtypes::nf4, order[1], 14, 17, 65, rng);
        both.a.add_parameters(kind, g.row_group, g.row_step, g.col_group, g.col_step, rng);
        both.b.add_parameters("scale", 1, 1, 1, 0, rng);
        check_chain_rows(both);
      }
    }
  }
}

TEST_CASE("rows of floats times vnni64 give the bits of chain512 for every dtype, scale and number of rows", "[cpu]") {
  std::mt19937 rng(11);
  const int64_t depths[] = {1, 3, 31, 32, 33, 64, 511, 512, 513, 544, 1024, 1030, 1600};
  const int64_t columns[] = {1, 15, 16, 17, 48, 63, 64, 65, 80, 129, 200};
  size_t count = 0;
  for (const DType dtype : all_dtypes()) {
    if (!layouts::vnni64.info().supports(dtype)) continue;
    for (const int64_t group : {int64_t{0}, int64_t{1}, int64_t{32}, int64_t{96}}) {  // 0: per tensor, 1: per row
      for (const char* kind : {"", "scale", "zero", "offset"}) {
        for (int64_t m = 1; m <= 9; m += group == 32 ? 1 : 3) {
          const int64_t k = depths[count % 13], n = columns[count % 11];
          const DType a = count % 4 == 3 ? dtypes::bf16 : dtypes::fp32;
          Problem problem(a, false, dtype, false, m, n, k, rng);
          if (group > 1 && *kind != 0) problem.b.add_parameters(kind, 1, (k + group - 1) / group, group, 1, rng);
          if (group <= 1 && *kind != 0) problem.b.add_parameters(kind, 1, group, 1, 0, rng);
          problem.accumulate = count % 3 == 0;
          if (count % 5 == 0) problem.c_dtype = dtypes::bf16;
          if (count % 2 == 0) problem.add_bias(rng);
          CHECK(check_panel_rows(problem, problem.finished(problem.chain_sums())) ==
                static_cast<int>(chain_kernels(layouts::vnni64).size()));
          ++count;
        }
      }
    }
  }
  // Groups that cut a line, a stored transpose and a scale for each k need other rows.
  const GemmKernel& row = gemm_kernel("gemm_f32_s8_f32_vnni64_scalar");
  Problem problem(dtypes::fp32, false, dtypes::int4, false, 2, 20, 64, rng);
  problem.b.add_parameters("scale", 1, 3, 20, 1, rng);
  CHECK_FALSE(row.supports(problem.args(nullptr)));
  CHECK_FALSE(row.supports(Problem(dtypes::fp32, false, dtypes::int4, true, 2, 20, 64, rng).args(nullptr)));
  CHECK_FALSE(row.supports(Problem(dtypes::fp32, true, dtypes::int4, false, 2, 20, 64, rng).args(nullptr)));
  CHECK_FALSE(row.supports(Problem(dtypes::int8, false, dtypes::int4, false, 2, 20, 64, rng).args(nullptr)));
}

TEST_CASE("rows of floats times vnni64 read scales in fp16, and keep zeros, subnormal numbers and infinities",
          "[cpu]") {
  std::mt19937 rng(12);
  const float edges[] = {0.0f, -0.0f, 1e-45f, -1e-39f, 3e37f}, scales[] = {0.0f, -0.0f, -1.5f, 0x1p-24f, 1.0f};
  const auto bits_or_nan = [](std::vector<uint8_t> c) {  // which NaN is not defined
    for (size_t at = 0; at + 4 <= c.size(); at += 4) {
      float y;
      std::memcpy(&y, &c[at], 4);
      if (std::isnan(y)) std::memset(&c[at], 0xFF, 4);
    }
    return c;
  };
  for (const DType dtype : all_dtypes()) {
    if (!layouts::vnni64.info().supports(dtype)) continue;
    for (int64_t m = 1; m <= 4; ++m) {
      const int64_t group = m % 2 == 0 ? 96 : 32, k = 1030;
      Problem problem(dtypes::fp32, false, dtype, false, m, m == 1 ? 200 : 80, k, rng);
      problem.b.add_parameters("scale", 1, (k + group - 1) / group, group, 1, rng);
      for (size_t i = 0; i < problem.b.scale.size(); ++i) {
        float& s = problem.b.scale[i];
        s = i % 7 == 0 ? scales[i / 7 % 5] : fp16_to_float(fp16_from_float(s));
      }
      auto* const x = reinterpret_cast<float*>(problem.a.bytes.data());
      for (size_t i = 0; i < 5; ++i) x[11 * i] = edges[i];
      for (const float last : {1.0f, INFINITY, NAN}) {
        x[1029] = last;
        const std::vector<uint8_t> expected = bits_or_nan(problem.finished(problem.chain_sums()));
        for (const GemmKernel* kernel : chain_kernels(layouts::vnni64)) {
          INFO(kernel->name << " " << dtype << " m " << m << " last " << last);
          CHECK((bits_or_nan(run_row(*kernel, problem)) == expected));
          for (const DType panel : {dtypes::fp32, dtypes::fp16})
            CHECK((bits_or_nan(run_row(*kernel, problem, panel)) == expected));
        }
      }
    }
  }
}

TEST_CASE("fold_b_scale multiplies a scale along k into A and a scale along n onto the sum", "[cpu]") {
  std::mt19937 rng(4);
  for (const bool* order : kOrders) {
    for (int which = 0; which < 4; ++which) {
      Problem problem(dtypes::fp32, order[0], dtypes::ternary, order[1], 13, 33, 1025, rng);
      if (which == 0) problem.b.add_parameters("scale", 1, 0, 1, 0, rng);
      if (which == 1) problem.b.add_parameters("scale", 1, 1, 1, 0, rng);
      if (which == 2) problem.b.add_parameters("scale", 1, 0, 1, 1, rng);
      problem.fold = which < 3;
      check_chain_rows(problem);
      problem.accumulate = true;
      problem.add_bias(rng);
      check_chain_rows(problem);
      for (const GemmKernel* kernel : chain_kernels()) check_within_bound(*kernel, problem);
      check_within_bound(gemm_kernel("gemm_f64_scalar"), problem);
    }
  }
}

TEST_CASE("a scale that cannot be folded, fp64 and products of integers are left to other rows", "[cpu]") {
  std::mt19937 rng(5);
  Problem group(dtypes::fp32, false, dtypes::int4, false, 3, 4, 64, rng);
  group.b.add_parameters("scale", 1, 4, 16, 1, rng);
  Problem zero(dtypes::fp32, false, dtypes::int4, false, 3, 4, 64, rng);
  zero.b.add_parameters("zero", 1, 0, 1, 0, rng);
  const Problem integers(dtypes::bint1, false, dtypes::int8, false, 3, 4, 64, rng);
  const Problem wide(dtypes::fp64, false, dtypes::int8, false, 3, 4, 64, rng);
  std::vector<uint8_t> c(1024);
  for (const GemmKernel* kernel : chain_kernels()) {
    CHECK(kernel->supports(group.args(nullptr)));
    CHECK(kernel->supports(zero.args(nullptr)));
    CHECK_FALSE(kernel->supports(integers.args(nullptr)));
    CHECK_FALSE(kernel->supports(wide.args(nullptr)));
    for (Problem* p : {&group, &zero}) {
      p->fold = true;
      CHECK_FALSE(kernel->supports(p->args(nullptr)));
      CHECK_THROWS_AS(gemm(p->args(c.data())), Error);
      p->fold = false;
    }
  }
  CHECK(select_gemm(wide.args(nullptr)).order == SumOrder::kFp64);
}

TEST_CASE("bf16 outputs are rounded once and stochastic rounding draws by element of C", "[cpu]") {
  std::mt19937 rng(6);
  const RandomStream stream{77, Purpose::kGradAccumulate, 5, 9};
  for (const int64_t k : {0, 100, 512, 513, 1100}) {
    for (int way = 0; way < 5; ++way) {
      Problem problem(dtypes::fp32, true, dtypes::bint1, true, 29, 170, k, rng);
      problem.c_dtype = dtypes::bf16;
      problem.accumulate = way >= 2;
      if (way == 1 || way == 3) problem.add_bias(rng);
      if (way >= 3) problem.sr = &stream;
      check_chain_rows(problem);
    }
  }
}

TEST_CASE("chain512 rows keep infinities, NaN and subnormal numbers", "[cpu]") {
  std::mt19937 rng(7);
  Problem problem(dtypes::fp32, false, dtypes::fp32, true, 5, 19, 40, rng);
  auto* x = reinterpret_cast<float*>(problem.a.bytes.data());
  x[3] = INFINITY;                                                                  // row 0
  reinterpret_cast<float*>(problem.a.bytes.data() + problem.a.stride)[5] = 1e-45f;  // row 1
  for (int64_t t = 0; t < 40; ++t) reinterpret_cast<float*>(problem.a.bytes.data() + 2 * problem.a.stride)[t] = 1e-42f;
  check_chain_rows(problem);
  reinterpret_cast<float*>(problem.a.bytes.data() + 3 * problem.a.stride)[7] = NAN;
  for (const GemmKernel* kernel : chain_kernels()) {
    const std::vector<uint8_t> c = run_row(*kernel, problem);
    for (int64_t j = 0; j < 19; ++j) {
      float y[2];
      std::memcpy(&y[0], &c[static_cast<size_t>(4 * (3 * 22 + j))], 4);
      std::memcpy(&y[1], &c[static_cast<size_t>(4 * (2 * 22 + j))], 4);
      CHECK(std::isnan(y[0]));
      CHECK(std::isfinite(y[1]));
    }
  }
}

TEST_CASE("library rows stay within the rounding bound in every order", "[cpu]") {
  std::mt19937 rng(8);
  const int64_t shapes[][3] = {{1, 1, 1},       {1, 40, 7},     {33, 1, 130}, {17, 65, 513},
                               {130, 300, 100}, {300, 130, 40}, {0, 5, 3},    {5, 0, 3}};
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.order != SumOrder::kFree || !runs_here(kernel) || (kernel.needs & isa::kAmx) != 0) continue;
    const DType in = kernel.name == "gemm_bf16_onednn" ? dtypes::bf16 : dtypes::fp32;
    for (const auto& shape : shapes) {
      for (const bool* order : kOrders) {
        for (int way = 0; way < 3; ++way) {
          Problem problem(in, order[0], in, order[1], shape[0], shape[1], shape[2], rng);
          problem.accumulate = way == 1;
          if (way == 2) problem.add_bias(rng);
          if (!kernel.supports(problem.args(nullptr))) {
            CHECK(in == dtypes::bf16);
            continue;
          }
          check_within_bound(kernel, problem);
        }
      }
    }
  }
}

TEST_CASE("oneDNN rounds bf16 outputs within one unit", "[cpu]") {
  std::mt19937 rng(9);
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.name != "gemm_bf16_onednn" || !runs_here(kernel)) continue;
    Problem problem(dtypes::bf16, false, dtypes::bf16, false, 20, 40, 64, rng);
    problem.add_bias(rng);
    problem.c_dtype = dtypes::bf16;
    if (!kernel.supports(problem.args(nullptr))) continue;
    const std::vector<uint8_t> c = run_row(kernel, problem);
    const std::vector<Problem::Exact> exact = problem.exact();
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t j = 0; j < 40; ++j) {
        const Problem::Exact& e = exact[static_cast<size_t>(i * 40 + j)];
        uint16_t word;
        std::memcpy(&word, &c[static_cast<size_t>(2 * (i * 43 + j))], 2);
        CHECK(std::fabs(static_cast<double>(bf16_to_float(word)) - e.sum) <= e.bound + std::fabs(e.sum) * 0x1p-8);
      }
    }
  }
}

TEST_CASE("the double row is exact where doubles are, for fp64 and wide integers", "[cpu]") {
  std::mt19937 rng(10);
  const GemmKernel& kernel = gemm_kernel("gemm_f64_scalar");
  for (const DType dtype : {dtypes::fp64, dtypes::int32, dtypes::int64, dtypes::fp32, dtypes::int5, dtypes::nf4}) {
    for (const bool* order : kOrders) {
      Problem problem(dtypes::fp64, order[0], dtype, order[1], 19, 67, 300, rng);
      problem.c_dtype = dtypes::fp64;
      std::vector<uint8_t> bytes = run_row(kernel, problem);
      int64_t bad = 0;
      for (int64_t i = 0; i < 19; ++i) {
        for (int64_t j = 0; j < 67; ++j) {
          double sum = 0, y;
          for (int64_t t = 0; t < 300; ++t) {
            const auto read = [&](const StoredMatrix& x, int64_t r, int64_t c) {
              if (x.dtype != dtypes::fp64) return static_cast<double>(x.number(r, c));
              double v;
              std::memcpy(&v, x.bytes.data() + r * x.stride + 8 * c, 8);
              return v;
            };
            sum = sum + (order[0] ? read(problem.a, t, i) : read(problem.a, i, t)) *
                            (order[1] ? read(problem.b, t, j) : read(problem.b, j, t));
          }
          std::memcpy(&y, &bytes[static_cast<size_t>(8 * (i * 70 + j))], 8);
          bad += y != sum;
        }
      }
      CHECK(bad == 0);
    }
  }
}

TEST_CASE("float rows give the same bits for 1, 2 and 4 threads", "[cpu]") {
  std::mt19937 rng(11);
  for (const int64_t k : {100, 520}) {
    for (const bool accumulate : {false, true}) {
      Problem problem(dtypes::fp32, true, dtypes::fp32, true, 130, 300, k, rng);
      problem.accumulate = accumulate;
      for (const GemmKernel& kernel : gemm_kernels()) {
        if (!runs_here(kernel) || !kernel.supports(problem.args(nullptr))) continue;
        INFO(kernel.name);
        const Threads one(1);
        const std::vector<uint8_t> expected = run_row(kernel, problem);
        for (const int threads : {2, 4}) {
          const Threads several(threads);
          CHECK((run_row(kernel, problem) == expected));
        }
      }
    }
  }
}

TEST_CASE("the expanded operands of an optimized row use at most 1 MiB a thread", "[cpu]") {
  std::mt19937 rng(12);
  for (const bool* order : {kOrders[0], kOrders[3]}) {
    Problem problem(dtypes::fp32, order[0], dtypes::int4, order[1], 400, 760, 600, rng);
    problem.b.add_parameters("scale", 1, 0, 1, 0, rng);
    problem.fold = true;
    for (const int threads : {1, 2}) {
      const Threads use(threads);
      for (const bool buffered : {false, true}) {
        problem.c_dtype = buffered ? dtypes::bf16 : dtypes::fp32;
        problem.accumulate = buffered;
        for (const GemmKernel* kernel : chain_kernels()) {
          if (kernel->needs == isa::kScalar) continue;  // the reference is exempt
          INFO(kernel->name << " threads " << threads << " buffered " << buffered);
          reset_memory_peaks();
          const int64_t before = memory_now()[MemoryKind::kWorkspace];
          run_row(*kernel, problem);
          const int64_t peak = memory_peak_by_kind()[MemoryKind::kWorkspace] - before;
          CHECK(peak > 0);
          CHECK(peak <= threads * (int64_t{1} << 20));
        }
      }
    }
  }
}

TEST_CASE("float products are always possible and go to a fast row where there is one", "[cpu]") {
  std::mt19937 rng(13);
  for (const DType dtype : all_dtypes()) {
    for (const DType c_dtype : {dtypes::fp32, dtypes::bf16, dtypes::fp64}) {
      Problem problem(dtypes::fp32, false, dtype, true, 100, 64, 128, rng);
      problem.c_dtype = c_dtype;
      const GemmKernel& kernel = select_gemm(problem.args(nullptr));
      INFO(dtype << " " << kernel.name);
      if (c_dtype == dtypes::fp64 || dtype == dtypes::fp64) {
        CHECK(kernel.order == SumOrder::kFp64);
      } else if ((cpu_isa() & isa::kAvx2) != 0) {
        CHECK((kernel.order == SumOrder::kFree || kernel.needs != isa::kScalar));
      }
    }
  }
}
