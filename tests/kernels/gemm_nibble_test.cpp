// Nibble counts where small random shapes do not reach: several chunks of rows, several blocks of lanes, the deepest
// k, both operands as the one that gives the tables. Against sums of int64.
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/layout.h"
#include "support/catch.h"
#include "support/gemm_reference.h"
#include "support/needs.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::CodeMatrix;
using test::Rng;

constexpr int64_t kMaxK = 32767;

struct Problem {
  CodeMatrix a, b;
  std::vector<uint64_t> derived_a, derived_b;
  GemmArgs args;
};

void derive(GemmOperand& x, Layout layout, int64_t rows, int64_t k, std::vector<uint64_t>& out) {
  if (layout == layouts::canonical) return;
  out.assign(static_cast<size_t>(layout.info().bytes(x.dtype, rows, k) / 8), 0);
  layout.info().pack(x.dtype, rows, k, x.data, x.stride, out.data());
  x.data = out.data();
  x.layout = layout;
}

Problem make_problem(const GemmKernel& kernel, DType a, DType b, int64_t m, int64_t n, int64_t k, uint64_t seed) {
  Rng rng(seed);
  Problem p{test::random_codes(rng, a, m, k), test::random_codes(rng, b, n, k), {}, {}, {}};
  p.args.m = m;
  p.args.n = p.args.ldc = n;
  p.args.k = k;
  p.args.c_dtype = dtypes::int32;
  p.args.a = p.a.operand();
  p.args.b = p.b.operand();
  derive(p.args.a, kernel.a_layout, m, k, p.derived_a);
  derive(p.args.b, kernel.b_layout, n, k, p.derived_b);
  return p;
}

// Every seventh element of some rows, and all of the last row and column.
int64_t wrong_sums(const Problem& p, const std::vector<int32_t>& c) {
  const GemmArgs& args = p.args;
  const std::vector<int64_t> a = test::reference_codes(p.a.operand(), args.m, args.k);
  const std::vector<int64_t> b = test::reference_codes(p.b.operand(), args.n, args.k);
  int64_t wrong = 0;
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      if ((i * args.n + j) % 7 != 0 && i + 1 != args.m && j + 1 != args.n) continue;
      int64_t sum = 0;
      for (int64_t l = 0; l < args.k; ++l)
        sum += a[static_cast<size_t>(i * args.k + l)] * b[static_cast<size_t>(j * args.k + l)];
      wrong += sum != c[static_cast<size_t>(i * args.n + j)];
    }
  }
  return wrong;
}

struct Kind {
  std::string stem;
  DType a, b;
};
const Kind kKinds[] = {{"gemm_b1_b1_i32_nibble", dtypes::bint1, dtypes::bint1},
                       {"gemm_t_b1_i32_nibble", dtypes::ternary, dtypes::bint1},
                       {"gemm_t_t_i32_nibble", dtypes::ternary, dtypes::ternary}};

// Calls f(row, a, b) for each table row that the machine has.
template <typename F>
void for_each_row(F f) {
  int rows = 0;
  test::skipped_without(isa::kAvx2);
  for (const GemmKernel& kernel : gemm_kernels()) {
    for (const Kind& kind : kKinds) {
      if (kernel.name.substr(0, kind.stem.size()) != kind.stem) continue;
      ++rows;
      if ((kernel.needs & ~cpu_isa()) == 0) f(kernel, kind.a, kind.b);
    }
  }
  CHECK(rows == 6);
}

// [cpu]: rows of the CPU
TEST_CASE("nibble counts are exact over several chunks of rows and blocks of lanes, tables of either operand",
          "[cpu]") {
  for_each_row([](const GemmKernel& kernel, DType a, DType b) {
    const std::pair<int64_t, int64_t> sides[] = {{2051, 128}, {128, 2051}, {130, 1025}, {1025, 67}};
    for (const auto& [m, n] : sides) {
      const Problem p = make_problem(kernel, a, b, m, n, 301, static_cast<uint64_t>(m));
      std::vector<int32_t> c(static_cast<size_t>(m * n), -1);
      GemmArgs args = p.args;
      args.c = c.data();
      REQUIRE(kernel.usable(args));
      kernel.run(args);
      INFO(kernel.name << " m " << m << " n " << n);
      CHECK(wrong_sums(p, c) == 0);
    }
  });
}

TEST_CASE("nibble counts stay exact in 16 bits at the deepest k, and leave deeper products to others", "[cpu]") {
  for_each_row([](const GemmKernel& kernel, DType a, DType b) {
    Problem p = make_problem(kernel, a, b, 3, 5, kMaxK, 1);
    // All products counted, or none: codes of A and B all alike, or all opposite.
    for (const bool alike : {true, false}) {
      for (CodeMatrix* x : {&p.a, &p.b}) {
        const uint32_t raw = static_cast<uint32_t>(encode_int(x->dtype.info(), x == &p.a || alike ? 1 : -1));
        for (int64_t r = 0; r < x->rows; ++r)
          for (int64_t k = 0; k < kMaxK; ++k)
            store_raw(reinterpret_cast<uint8_t*>(x->words.data()) + r * x->stride, k, x->dtype.bits(), raw);
      }
      GemmArgs args = p.args;
      args.a = p.a.operand();
      args.b = p.b.operand();
      derive(args.a, kernel.a_layout, 3, kMaxK, p.derived_a);
      derive(args.b, kernel.b_layout, 5, kMaxK, p.derived_b);
      std::vector<int32_t> c(15);
      args.c = c.data();
      kernel.run(args);
      INFO(kernel.name << " alike " << alike);
      CHECK((c == std::vector<int32_t>(15, static_cast<int32_t>(alike ? kMaxK : -kMaxK))));
      args.k = kMaxK + 1;
      CHECK_FALSE(kernel.supports(args));
    }
  });
}

TEST_CASE("nibble counts give the same bits for any number of threads", "[cpu]") {
  const int threads = num_threads();
  for_each_row([](const GemmKernel& kernel, DType a, DType b) {
    const Problem p = make_problem(kernel, a, b, 300, 1100, 500, 3);
    std::vector<float> first(300 * 1100), second(300 * 1100);
    GemmArgs args = p.args;
    args.c_dtype = dtypes::fp32;
    set_num_threads(1);
    args.c = first.data();
    kernel.run(args);
    set_num_threads(3);
    args.c = second.data();
    kernel.run(args);
    CHECK((first == second));
  });
  set_num_threads(threads);
}

}  // namespace
}  // namespace bitgrad
