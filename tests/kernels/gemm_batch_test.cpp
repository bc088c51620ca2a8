// Batches of products: every kernel of the table gives the bits of the products alone, for any number of members and
// threads; what is no batch is refused.
#include <functional>
#include <set>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/gemm/common/batch.h"
#include "kernels/gemm_amx_kernels.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gemm_batch.h"
#include "support/gemm_reference.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::BatchForm;
using test::BatchPair;
using test::BatchProblem;
using test::contains;
using test::error_of;

// Kernels of this machine, and those of the tile unit around emulated tiles.
struct Runnable {
  GemmKernel kernel;
  bool emulated;
  void operator()(const GemmArgs& args) const {
    if (emulated && args.batch.count != 1) return gemm_detail::run_members(args, kernel.run);
    kernel.run(args);
  }
};
std::vector<Runnable> kernels_here() {
  std::vector<Runnable> all;
  for (const GemmKernel& kernel : gemm_kernels())
    if (kernel.device == DeviceKind::kCpu && (kernel.needs & ~cpu_isa()) == 0) all.push_back({kernel, false});
  for (const SumOrder order : {SumOrder::kExact, SumOrder::kFree, SumOrder::kDigits3, SumOrder::kDigits2})
    for (const GemmKernel& kernel : test::amx_kernels(order))
      if (kernel.needs == isa::kScalar) all.push_back({kernel, true});
  return all;
}

class Threads {
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("a batch has the bits of its products one by one, by every kernel, for 0, 1, 2 and 7 members and any threads",
          "[cpu]") {
  std::mt19937 rng(91);
  for (const Runnable& kernel : kernels_here()) {
    int taken = 0;
    for (const BatchPair& pair : test::batch_pairs())
      for (const int64_t count : {0, 1, 2, 7}) {
        BatchForm form = test::random_form(rng, pair, count);
        if (!kernel.kernel.supports(test::form_args(form))) {  // outputs and parameters that it has no code for
          const BatchForm drawn = form;
          form = {};
          form.pair = pair;
          form.m = drawn.m, form.n = drawn.n, form.k = drawn.k, form.count = count;
          form.beside = drawn.beside, form.shared_b = drawn.shared_b;
          form.c_dtype = pair.a == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
          if (!kernel.kernel.supports(test::form_args(form)) && !pair.b_k_major) form.b_parameters = "groups";
          if (!kernel.kernel.supports(test::form_args(form))) continue;
        }
        ++taken;
        INFO(kernel.kernel.name << (kernel.emulated ? " (emulated)" : "") << ' ' << pair.a << " x " << pair.b << " m "
                                << form.m << " n " << form.n << " k " << form.k << " to " << form.c_dtype
                                << ", members " << count);
        const BatchProblem problem(rng, form, kernel.kernel.a_layout, kernel.kernel.b_layout);
        std::vector<uint8_t> expected;
        {
          const Threads one(1);
          expected = problem.one_by_one(kernel);
        }
        const bool written = expected != problem.c_before;
        REQUIRE(written == (count > 0));
        for (const int threads : {1, 3}) {
          const Threads some(threads);
          const bool equal = problem.as_batch(kernel) == expected;
          REQUIRE(equal);
        }
      }
    INFO(kernel.kernel.name);
    const bool library = kernel.kernel.name == "gemm_bf16_onednn";  // has none for some instruction sets
    CHECK((taken > 0 || library));
  }
}

TEST_CASE("large members, and many of them, have the same bits as small ones", "[cpu]") {
  std::mt19937 rng(92);
  struct Shape {
    int64_t count, m, n, k;
  };
  for (const Shape& s : {Shape{3, 140, 260, 150}, Shape{70, 9, 20, 40}, Shape{200, 1, 3, 5}, Shape{65, 64, 260, 300}}) {
    for (const BatchPair& pair : {BatchPair{dtypes::fp32, dtypes::fp32}, BatchPair{dtypes::int8, dtypes::int4},
                                  BatchPair{dtypes::fp32, dtypes::ternary}}) {
      BatchForm form;
      form.pair = pair;
      form.count = s.count, form.m = s.m, form.n = s.n, form.k = s.k;
      form.beside = s.count % 2 == 0;
      const BatchProblem problem(rng, form, layouts::canonical, layouts::canonical);
      const auto run = [](const GemmArgs& args) { gemm(args); };
      const std::vector<uint8_t> expected = problem.one_by_one(run);
      INFO(pair.a << " x " << pair.b << ", members " << s.count);
      for (const int threads : {1, 4}) {
        const Threads some(threads);
        const bool equal = problem.as_batch(run) == expected;
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("members of a batch are products of values: against sums in int64", "[cpu]") {
  std::mt19937 rng(93);
  BatchForm form;
  form.pair = {dtypes::int8, dtypes::int4};
  form.count = 5, form.m = 7, form.n = 18, form.k = 70;
  form.c_dtype = dtypes::int64;
  const BatchProblem problem(rng, form, layouts::canonical, layouts::canonical);
  const std::vector<uint8_t> c = problem.as_batch([](const GemmArgs& args) { gemm(args); });
  for (int64_t i = 0; i < form.count; ++i) {
    const std::vector<int64_t> a = test::reference_codes(problem.a.member(problem.a.operand(), i), form.m, form.k),
                               b = test::reference_codes(problem.b.member(problem.b.operand(), i), form.n, form.k);
    int64_t wrong = 0;
    for (int64_t r = 0; r < form.m; ++r)
      for (int64_t j = 0; j < form.n; ++j)
        wrong += static_cast<int64_t>(test::element_bits(c, dtypes::int64, i * problem.c_step + r * problem.ldc + j)) !=
                 test::reference_dot(a.data() + r * form.k, b.data() + j * form.k, form.k);
    CHECK(wrong == 0);
  }
}

TEST_CASE("stochastic rounding of a batch is numbered through all members, from first_element on", "[cpu]") {
  std::mt19937 rng(94);
  BatchForm form;
  form.pair = {dtypes::fp32, dtypes::fp32};
  form.count = 4, form.m = 5, form.n = 9, form.k = 33;
  const BatchProblem floats(rng, form, layouts::canonical, layouts::canonical);
  const GemmKernel& kernel = test::gemm_kernel("gemm_f32_chain512_scalar");
  const std::vector<uint8_t> y = floats.as_batch(kernel.run);
  GemmArgs args = floats.host_args(nullptr);
  std::vector<uint16_t> c(static_cast<size_t>(form.count * form.m * form.n));
  args.c = c.data();
  args.c_dtype = dtypes::bf16;
  args.ldc = form.n;
  args.batch.c = form.m * form.n;
  args.sr = &floats.stream;
  args.first_element = 11;
  kernel.run(args);
  int64_t wrong = 0, at = 0;
  for (int64_t i = 0; i < form.count; ++i)
    for (int64_t r = 0; r < form.m; ++r)
      for (int64_t j = 0; j < form.n; ++j, ++at) {
        const auto bits =
            static_cast<uint32_t>(test::element_bits(y, dtypes::fp32, i * floats.c_step + r * floats.ldc + j));
        wrong += c[static_cast<size_t>(at)] !=
                 bf16_from_float_stochastic(std::bit_cast<float>(bits),
                                            floats.stream.bits16(static_cast<uint64_t>(11 + at)));
      }
  CHECK(wrong == 0);
}

TEST_CASE("invalid batches are errors of the selection: counts, overlapping members, steps that cut an element",
          "[cpu]") {
  GemmArgs args;
  args.m = 3, args.n = 8, args.k = 20, args.ldc = 10;
  args.a.dtype = args.b.dtype = dtypes::int8;
  args.a.stride = args.b.stride = 24;
  args.batch = {2, 72, 0, 28};
  const auto error = [](const GemmArgs& of) { return error_of([&] { select_gemm(of); }); };
  CHECK(error(args) == "");
  CHECK(error_of([&] { plan_gemm(args); }) == "");
  GemmArgs bad = args;
  bad.batch.count = -1;
  CHECK(error(bad) == "[gemm] batch: got -1 members, expected 0 or more.");
  CHECK(contains(error_of([&] { plan_gemm(bad); }), "[plan_gemm] batch: got -1 members"));
  bad = args;
  bad.batch.c = 27;
  CHECK(error(bad) ==
        "[gemm] batch: members of C overlap: got 2 of [3,8] whose rows are 10 elements apart, at steps of 27, expected "
        "steps of at least 28, or members side by side within a row.");
  bad.batch.c = 0;
  CHECK(contains(error(bad), "members of C overlap"));
  bad.batch.c = -28;
  CHECK(contains(error(bad), "members of C overlap"));
  bad.batch.c = 8;  // two of 8 columns in rows of 10
  CHECK(contains(error(bad), "members of C overlap"));
  bad.ldc = 16;
  CHECK(error(bad) == "");
  bad.batch.count = 3;
  CHECK(contains(error(bad), "members of C overlap"));
  bad = args;
  bad.batch.a = 20;
  CHECK(error(bad) == "[gemm] batch: members of A (int8) are 20 bytes apart, expected a multiple of 8.");
  bad = args;
  bad.a.dtype = bad.b.dtype = dtypes::fp32;
  bad.a.stride = bad.b.stride = 80;
  bad.batch.b = 81;
  CHECK(error(bad) == "[gemm] batch: members of B (fp32) are 81 bytes apart, expected a multiple of 4.");
  bad.batch.b = 84;
  CHECK(error(bad) == "");
  bad.batch = {0, 1, 1, 0};  // nobody reads the steps of no member
  CHECK(error(bad) == "");
  bad.batch.count = 1;
  CHECK(error(bad) == "");
  bad.batch = {2, 80, 80, 0};
  bad.m = 0;
  CHECK(error(bad) == "");
}

}  // namespace
}  // namespace bitgrad
