// Costs of gemm rows as measured on a machine: the table's file, its errors, what it does to the choice, and the
// verdict on every row.
#include <cmath>
#include <fstream>
#include <locale>

#include "bitgrad/base/cpu.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::contains;
using test::error_of;
using test::TempDir;

// The shipped costs come back, whatever a test does.
struct ShippedCosts {
  ShippedCosts() { set_gemm_costs({}); }
  ~ShippedCosts() { set_gemm_costs({}); }
};

GemmArgs product(DType a, DType b, int64_t m = 128) {
  GemmArgs args;
  args.m = m;
  args.n = args.ldc = 256;
  args.k = 512;
  args.a.dtype = a;
  args.b.dtype = b;
  return args;
}

std::vector<GemmCandidate> usable(const GemmArgs& args) {
  std::vector<GemmCandidate> out;
  for (const GemmCandidate& c : explain_gemm(args))
    if (c.verdict == GemmVerdict::kChosen || c.verdict == GemmVerdict::kDearer) out.push_back(c);
  return out;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
std::string head() { return "bitgrad gemm costs 1\ncpu " + cpu_model_name() + "\n"; }

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("rows of A fall into four classes", "[cpu]") {
  const std::pair<int64_t, int> expected[] = {{0, 0},  {1, 0},   {2, 1},   {16, 1},
                                              {17, 2}, {128, 2}, {129, 3}, {1 << 20, 3}};
  for (const auto& [m, size] : expected) CHECK(gemm_cost_class(m) == size);
}

TEST_CASE("explain_gemm judges every row, and the chosen one is plan_gemm's and the cheapest", "[cpu]") {
  const ShippedCosts shipped;
  for (const auto& [a, b] : {std::pair{dtypes::bint1, dtypes::bint1},
                             {dtypes::int8, dtypes::int4},
                             {dtypes::fp32, dtypes::fp32},
                             {dtypes::fp32, dtypes::bint1},
                             {dtypes::fp64, dtypes::fp64}}) {
    const GemmArgs args = product(a, b);
    const std::vector<GemmCandidate> all = explain_gemm(args);
    CHECK(all.size() == gemm_kernels().size());
    int chosen = 0;
    double best = INFINITY, chosen_ns = -1;
    for (const GemmCandidate& c : all) {
      const bool is_usable = c.verdict == GemmVerdict::kChosen || c.verdict == GemmVerdict::kDearer;
      if (c.verdict == GemmVerdict::kChosen) {
        ++chosen;
        chosen_ns = c.ns;
        CHECK(c.kernel == &plan_gemm(args));
      }
      CHECK(is_usable == c.kernel->usable(args));
      if (is_usable) best = std::min(best, c.ns);
      CHECK(((c.kernel->needs & ~cpu_isa()) != 0) == (c.verdict == GemmVerdict::kNeedsIsa));
    }
    CHECK(chosen == 1);
    CHECK(chosen_ns == best);
  }
}

TEST_CASE("one row times bits in groups reads tables where there are byte permutes, three rows read none", "[cpu]") {
  const ShippedCosts shipped;
  constexpr std::string_view kTables = "gemm_s8_b1_i32_vnni64_tables_avx512";
  std::vector<float> scale(size_t{1536} * 16, 0.5f);
  GemmArgs args = product(dtypes::int8, dtypes::bint1);
  args.n = args.ldc = 1536;
  args.k = 2048;
  args.b.scale = {.scale = scale.data(), .row_step = 16, .col_step = 1, .col_group = 128};
  for (const int64_t m : {1, 3, 128}) {
    args.m = m;
    for (const GemmCandidate& c : explain_gemm(args)) {
      if (c.kernel->name != kTables) continue;
      const bool there = (c.kernel->needs & ~cpu_isa()) == 0;
      CHECK(c.verdict == (!there ? GemmVerdict::kNeedsIsa : m == 1 ? GemmVerdict::kChosen : GemmVerdict::kUnsupported));
    }
  }
  args.m = 2;  // few columns do not pay for tables
  args.n = args.ldc = 16;
  for (const GemmCandidate& c : explain_gemm(args))
    CHECK((c.kernel->name != kTables || c.verdict != GemmVerdict::kChosen));
}

TEST_CASE("in strict mode rows of a free order are named as such", "[cpu]") {
  const ShippedCosts shipped;
  set_bits_mode(BitsMode::kStrict);
  for (const GemmCandidate& c : explain_gemm(product(dtypes::fp32, dtypes::fp32)))
    if (c.kernel->order == SumOrder::kFree && c.verdict != GemmVerdict::kNeedsIsa &&
        c.verdict != GemmVerdict::kUnsupported)
      CHECK(c.verdict == GemmVerdict::kOrder);
  set_bits_mode(BitsMode::kFast);
}

TEST_CASE("a factor moves the choice within its class of rows only, and is forgotten again", "[cpu]") {
  const ShippedCosts shipped;
  const GemmArgs args = product(dtypes::fp32, dtypes::fp32);
  const std::vector<GemmCandidate> rows = usable(args);
  REQUIRE(rows.size() >= 2);
  const GemmKernel& before = plan_gemm(args);
  GemmCostFactors slow;
  slow.kernel = before.name;
  slow.factor[2] = 1e15;  // m = 128
  set_gemm_costs({slow});
  CHECK(&plan_gemm(args) != &before);
  CHECK(gemm_cost(before, args) == before.cost(args) * 1e15);
  const GemmArgs larger = product(dtypes::fp32, dtypes::fp32, 129);
  CHECK(gemm_cost(before, larger) == before.cost(larger));
  CHECK(gemm_costs().size() == 1);
  set_gemm_costs({});
  CHECK(&plan_gemm(args) == &before);
}

TEST_CASE("a table of costs is read as it was written", "[cpu]") {
  const ShippedCosts shipped;
  const TempDir temp;
  std::vector<GemmCostFactors> rows(2);
  rows[0].kernel = gemm_kernels()[0].name;
  rows[0].factor = {0.5, 1.25, 2, 1024};
  rows[1].kernel = "gemm_of_another_build";
  const std::string path = temp.file("new/folder/costs.txt");
  save_gemm_costs(path, rows);
  REQUIRE(load_gemm_costs(path));
  const std::vector<GemmCostFactors> read = gemm_costs();
  REQUIRE(read.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(read[i].kernel == rows[i].kernel);
    CHECK(read[i].factor == rows[i].factor);
  }
}

TEST_CASE("a table of costs is the same text in a program with a decimal comma", "[cpu]") {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  struct Global {
    std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
    ~Global() { std::locale::global(before); }
  };
  const ShippedCosts shipped;
  const TempDir temp;
  GemmCostFactors row;
  row.kernel = gemm_kernels()[0].name;
  row.factor = {0.5, 1.25, 2, 1e-7};
  const Global global;
  save_gemm_costs(temp.file("costs.txt"), {row});
  REQUIRE(load_gemm_costs(temp.file("costs.txt")));
  CHECK(gemm_costs()[0].factor == row.factor);
}

TEST_CASE("an absent table and one of another machine leave the shipped costs", "[cpu]") {
  const ShippedCosts shipped;
  const TempDir temp;
  CHECK_FALSE(load_gemm_costs(""));
  CHECK_FALSE(load_gemm_costs(temp.file("absent.txt")));
  put(temp.file("other.txt"), "bitgrad gemm costs 1\ncpu another one\ngemm_f32_eigen 1 1 1 1\n");
  CHECK_FALSE(load_gemm_costs(temp.file("other.txt")));
  CHECK(gemm_costs().empty());
}

TEST_CASE("a damaged table is an error that names file and line", "[cpu]") {
  const ShippedCosts shipped;
  const TempDir temp;
  const std::string path = temp.file("costs.txt");
  put(path, "something else\n");
  CHECK(contains(error_of([&] { load_gemm_costs(path); }),
                 path + ":1: got 'something else', expected 'bitgrad gemm costs 1'"));
  for (const char* line : {"gemm_f32_eigen 1 1 1", "gemm_f32_eigen 1 1 1 1 1", "gemm_f32_eigen 1 x 1 1",
                           "gemm_f32_eigen 1 0 1 1", "gemm_f32_eigen 1 -2 1 1", "gemm_f32_eigen 1 nan 1 1",
                           "gemm_f32_eigen 1 inf 1 1", "gemm_f32_eigen 1 1 1 1e999"}) {
    put(path, head() + "gemm_f32_eigen 1 1 1 1\n" + line + "\n");
    const std::string text = error_of([&] { load_gemm_costs(path); });
    INFO(text);
    CHECK(contains(text, path + ":4: got '" + line + "', expected a kernel's name and 4 factors above 0"));
    CHECK(contains(text, "bitgrad kernels --calibrate"));
  }
  put(path, head() + "gemm_f32_eigen 1 1 1 1\ngemm_f32_eigen 2 1 1 1\n");
  CHECK(contains(error_of([&] { load_gemm_costs(path); }), path + ":4: kernel 'gemm_f32_eigen' is named twice"));
  CHECK(gemm_costs().empty());
}

// Whether the row takes any plain product of what networks multiply, in its own layouts.
bool takes_any(const GemmKernel& kernel) {
  using namespace dtypes;
  const DType operands[] = {bint1, ternary, int2, uint2, int4, int8, bf16, fp32};
  for (const DType a : operands)
    for (const DType b : operands)
      for (const int orders : {0, 1, 2, 3}) {
        GemmArgs args = product(a, b);
        args.a.k_major = (orders & 1) != 0;
        args.b.k_major = (orders & 2) != 0;
        if (kernel.supports(args)) return true;
      }
  return false;
}

// Calibrates under the cap in use, and checks which rows were measured.
std::vector<GemmCostFactors> check_calibration() {
  std::vector<std::string> seen;
  const std::vector<GemmCostFactors> rows = calibrate_gemm([&](std::string_view row) { seen.emplace_back(row); });
  CHECK(rows.size() == seen.size());
  for (const GemmCostFactors& row : rows) {
    INFO(row.kernel);
    CHECK(std::find(seen.begin(), seen.end(), row.kernel) != seen.end());
    for (const double f : row.factor) CHECK((std::isfinite(f) && f > 0));
    // 1 is the factor of a class in which no product was measured.
    CHECK(std::any_of(row.factor.begin(), row.factor.end(), [](double f) { return f != 1; }));
  }
  set_gemm_costs(rows);  // names are rows of this build, each once
  for (const GemmKernel& kernel : gemm_kernels()) {
    INFO(kernel.name);
    const bool vector = kernel.needs != isa::kScalar || kernel.order == SumOrder::kFree;
    const bool measured = std::find(seen.begin(), seen.end(), kernel.name) != seen.end();
    CHECK(measured == (vector && (kernel.needs & ~cpu_isa()) == 0 && takes_any(kernel)));
  }
  return rows;
}

TEST_CASE("calibration measures each vector row that may run, once", "[slow][cpu]") {
  const ShippedCosts shipped;
  check_calibration();
}

TEST_CASE("calibration skips a library's row that supports no product under the cap", "[cpu]") {
  const ShippedCosts shipped;
  struct Scalar {
    IsaLevel before = isa_cap();
    Scalar() { set_isa_cap(IsaLevel::kScalar); }
    ~Scalar() { set_isa_cap(before); }
  };
  const Scalar scalar;
  for (const GemmCostFactors& row : check_calibration()) CHECK(row.kernel != "gemm_bf16_onednn");
}

}  // namespace
}  // namespace bitgrad
