// The references of family gemm on the device: exact sums against 128 bits, float sums against the CPU's rows, bit by
// bit.
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/gemm/library/cublaslt.h"
#include "cuda/on_device.h"
#include "kernels/gemm_float_problem.h"
#include "support/catch.h"
#include "support/gemm_int_problem.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::Case;
using test::cuda_kernel;
using test::GemmShape;
using test::make_case;
using test::on_device;
using test::Rng;
using test::uniform_int;
using test::wrong_elements;

// An fp32 product by the reference, as run_expanded wants it.
bool by_reference(const cuda::gemm::LtProduct& p) {
  GemmArgs args;
  args.m = p.m, args.n = p.n, args.k = p.k, args.ldc = p.ldc;
  args.a = {p.a, dtypes::fp32, layouts::canonical, p.lda * 4, p.a_k_major, {}};
  args.b = {p.b, dtypes::fp32, layouts::canonical, p.ldb * 4, p.b_k_major, {}};
  args.c = p.c, args.c_dtype = dtypes::fp32, args.bias = p.bias, args.accumulate = p.accumulate;
  cuda_kernel("gemm_f32_chain512_simt").run(args);
  return true;
}

std::vector<DType> integer_dtypes() {
  std::vector<DType> list{dtypes::int32, dtypes::int64};
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  return list;
}
DType any_of(Rng& rng, const std::vector<DType>& list) {
  return list[static_cast<size_t>(uniform_int(rng, 0, static_cast<int64_t>(list.size()) - 1))];
}
GemmShape reference_shape(Rng& rng) {
  constexpr int64_t kFree[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 130};
  constexpr int64_t kDeep[] = {0, 1, 31, 32, 33, 64, 65, 511, 513};
  return {kFree[uniform_int(rng, 0, 9)], kFree[uniform_int(rng, 0, 9)], kDeep[uniform_int(rng, 0, 8)]};
}

TEST_CASE(
    "gemm on CUDA: the integer reference is exact for every pair of integer dtypes, zeros and orders of storage") {
  Rng rng(41);
  const GemmKernel kernel = on_device(cuda_kernel("gemm_int_simt"));
  const std::vector<DType> list = integer_dtypes();
  const int count = test::shape_count(120);
  for (int i = 0; i < count; ++i) {
    const DType da = any_of(rng, list), db = any_of(rng, list);
    const GemmShape shape = reference_shape(rng);
    Case t;
    make_case(rng, t, da, db, shape, true);
    REQUIRE(kernel.supports(t.args));
    const std::vector<int64_t> a = test::reference_codes(t.args.a, shape.m, shape.k);
    const std::vector<int64_t> b = test::reference_codes(t.args.b, shape.n, shape.k);
    INFO(da << " x " << db << ", m " << shape.m << " n " << shape.n << " k " << shape.k << " to " << t.args.c_dtype);
    CHECK(wrong_elements(rng, kernel, t.args, a, b) == 0);
  }
}

// Parameters of every kind for `count` places.
struct Params {
  std::vector<float> scale, offset;
  std::vector<int32_t> zero;
  Params(Rng& rng, int64_t count) {
    for (int64_t i = 0; i <= count; ++i) {
      scale.push_back(std::ldexp(static_cast<float>(uniform_int(rng, 1, 999)), -12));
      offset.push_back(std::ldexp(static_cast<float>(uniform_int(rng, -999, 999)), -9));
      zero.push_back(static_cast<int32_t>(uniform_int(rng, -300, 300)));
    }
  }
};

TEST_CASE("gemm on CUDA: the integer reference follows the formulas of real offsets and of groups along k") {
  Rng rng(42);
  const GemmKernel kernel = on_device(cuda_kernel("gemm_int_simt"));
  std::vector<DType> list = integer_dtypes();
  std::erase(list, dtypes::int64);  // sums of the reference stay within int64
  for (int i = 0; i < test::shape_count(60); ++i) {
    const DType da = any_of(rng, list), db = any_of(rng, list);
    GemmShape shape = reference_shape(rng);
    shape.k = std::max<int64_t>(1, shape.k);
    Case t;
    make_case(rng, t, da, db, shape, true);
    GemmArgs& args = t.args;
    args.row_minus = nullptr;
    args.c_dtype = i % 2 == 0 ? dtypes::fp32 : dtypes::bf16;
    const bool groups = i % 3 != 0, blocks = groups && i % 4 == 3;  // blocks: of A, of two groups each
    const int64_t group = uniform_int(rng, 1, 70), free_group = uniform_int(rng, 1, 3);
    const int64_t steps = (shape.k + group - 1) / group;
    const int64_t pairs = (shape.k + 2 * group - 1) / (2 * group);
    const Params pa(rng, blocks ? shape.m * pairs : shape.m),
        pb(rng, groups ? (shape.n / free_group + 1) * steps : shape.n);
    args.a.scale = args.b.scale = {};
    args.a.scale.scale = pa.scale.data();
    (args.a.k_major ? args.a.scale.col_step : args.a.scale.row_step) = 1;
    args.b.scale.scale = pb.scale.data();
    if (groups) {
      ScaleMap& map = args.b.scale;
      (args.b.k_major ? map.row_group : map.col_group) = group;
      (args.b.k_major ? map.row_step : map.col_step) = 1;
      (args.b.k_major ? map.col_group : map.row_group) = free_group;
      (args.b.k_major ? map.col_step : map.row_step) = steps;
      if (i % 2 == 0) map.offset = pb.offset.data();
      if (i % 4 == 1) map.zero = pb.zero.data();
      if (i % 5 == 0 && !blocks) args.a.scale.zero = pa.zero.data();
      if (blocks) {
        ScaleMap& of_a = args.a.scale;
        (args.a.k_major ? of_a.row_group : of_a.col_group) = 2 * group;
        (args.a.k_major ? of_a.row_step : of_a.col_step) = 1;
        (args.a.k_major ? of_a.col_step : of_a.row_step) = pairs;
      }
    } else {
      (args.b.k_major ? args.b.scale.col_step : args.b.scale.row_step) = 1;
      if (i % 2 == 0) args.a.scale.offset = pa.offset.data();
      if (i % 4 != 0) args.b.scale.offset = pb.offset.data();
      if (args.b.scale.offset == nullptr) args.b.scale.zero = pb.zero.data();
      if (args.a.scale.offset == nullptr) args.a.scale.zero = pa.zero.data();
    }
    REQUIRE(kernel.supports(args));
    const std::vector<int64_t> a = test::reference_codes(args.a, shape.m, shape.k);
    const std::vector<int64_t> b = test::reference_codes(args.b, shape.n, shape.k);
    INFO(da << " x " << db << ", m " << shape.m << " n " << shape.n << " k " << shape.k << " group " << group);
    CHECK(wrong_elements(rng, kernel, args, [&](int64_t r, int64_t c, uint64_t old) {
            const int64_t *x = a.data() + r * shape.k, *y = b.data() + c * shape.k;
            return groups ? test::reference_groups<float>(args, group, r, c, x, y, old, blocks)
                          : test::reference_offsets<float>(args, r, c, x, y, old);
          }) == 0);
  }
}

// Random float products with any dtypes, orders of storage and parameters.
test::Problem random_problem(std::mt19937& rng, DType da, DType db, int64_t m, int64_t n, int64_t k) {
  test::Problem p(da, rng() % 2 == 0, db, rng() % 2 == 0, m, n, k, rng);
  const char* const kinds[] = {"scale", "zero", "offset"};
  if (rng() % 2 == 0) {
    const auto group = static_cast<int64_t>(1 + rng() % 40);
    p.a.add_parameters(kinds[rng() % 3], p.a_k_major ? group : 1, 1, p.a_k_major ? 1 : group, p.a.rows, rng);
  }
  const uint32_t way = rng() % 4;
  if (way == 1) p.b.add_parameters(kinds[rng() % 3], 3, 1, 5, p.b.rows / 3 + 1, rng);
  if (way == 2) p.b.add_parameters("scale", 1, 1, 1, 0, rng);  // per stored row: k or n
  if (way == 3) p.b.add_parameters("scale", 1, 0, 1, 0, rng);
  p.fold = way >= 2 && rng() % 2 == 0;
  if (rng() % 2 == 0) p.add_bias(rng);
  p.c_dtype = rng() % 2 == 0 ? dtypes::fp32 : dtypes::bf16;
  p.accumulate = rng() % 2 == 0;
  return p;
}

void check_same_bits(const GemmKernel& kernel, const GemmKernel& cpu, const test::Problem& p) {
  std::vector<uint8_t> mine = p.c_before, theirs = p.c_before;
  const GemmArgs args = p.args(mine.data());
  if (!cpu.supports(args)) return;
  REQUIRE(kernel.supports(args));
  test::run_on_device(kernel, args, 8);
  cpu.run(p.args(theirs.data()));
  INFO(p.a.dtype << (p.a_k_major ? " k-major x " : " x ") << p.b.dtype << (p.b_k_major ? " k-major" : "") << ", m "
                 << p.m << " n " << p.n << " k " << p.k << " to " << p.c_dtype << (p.fold ? " folded" : ""));
  CHECK((mine == theirs));
}

TEST_CASE("gemm on CUDA: float products have the bits of the CPU's references in both orders") {
  std::mt19937 rng(43);
  const GemmKernel &chain = cuda_kernel("gemm_f32_chain512_simt"), &table = cuda_kernel("gemm_f32_table_simt");
  const RandomStream stream{9, Purpose::kGradAccumulate, 3, 4};
  std::vector<DType> all;
  for (const DType d : all_dtypes())
    if (d != dtypes::fp64) all.push_back(d);
  constexpr int64_t kDeep[] = {0, 1, 31, 33, 41, 42, 43, 512, 513, 1030};
  for (int i = 0; i < test::shape_count(120); ++i) {
    const DType da = i % 3 == 0 ? dtypes::fp32 : all[rng() % all.size()], db = all[rng() % all.size()];
    test::Problem p = random_problem(rng, da, db, static_cast<int64_t>(rng() % 70), static_cast<int64_t>(rng() % 70),
                                     kDeep[rng() % 10]);
    if (rng() % 2 == 0) p.sr = &stream;
    check_same_bits(chain, test::gemm_kernel("gemm_f32_chain512_scalar"), p);
    check_same_bits(table, test::gemm_kernel("gemm_f32_table_scalar"), p);
  }
  for (const DType db : {dtypes::bint1, dtypes::int1, dtypes::ternary, dtypes::int2, dtypes::uint2}) {
    for (const int64_t k : {1, 5, 6, 41, 42, 43, 85, 300}) {
      const test::Problem p(dtypes::fp32, false, db, k % 2 == 0, 9, 67, k, rng);
      check_same_bits(table, test::gemm_kernel("gemm_f32_table_scalar"), p);
    }
  }
}

TEST_CASE("gemm on CUDA: codes that are expanded for a product of floats have the reference's bits") {
  std::mt19937 rng(44);
  int64_t taken = 0, refused = 0;
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() || d == dtypes::fp32 || d == dtypes::bf16) list.push_back(d);
  static const GemmKernel expanded = [] {
    GemmKernel kernel = cuda_kernel("gemm_f32_codes_cublaslt");
    kernel.supports = cuda::gemm::expands;  // also without the library
    kernel.run = [](const GemmArgs& args) { REQUIRE(cuda::gemm::run_expanded(args, by_reference)); };
    return kernel;
  }();
  for (int i = 0; i < test::shape_count(200); ++i) {
    test::Problem p = random_problem(rng, i % 2 == 0 ? dtypes::fp32 : list[rng() % list.size()],
                                     list[rng() % list.size()], static_cast<int64_t>(1 + rng() % 70),
                                     static_cast<int64_t>(1 + rng() % 70), static_cast<int64_t>(1 + rng() % 600));
    p.fold = false;
    std::vector<uint8_t> c = p.c_before;
    if (!expanded.supports(p.args(c.data()))) {
      ++refused;
      continue;
    }
    ++taken;
    check_same_bits(expanded, test::gemm_kernel("gemm_f32_chain512_scalar"), p);
  }
  if (test::all_shapes(200)) {
    CHECK(taken > 20);
    CHECK(refused > 20);
  }
  GemmArgs args;
  args.m = args.n = args.k = args.ldc = 8;
  args.a = {nullptr, dtypes::bf16, layouts::canonical, 16, false, {}};
  args.b = {nullptr, dtypes::int4, layouts::canonical, 8, false, {}};
  const auto expands = [&] { return cuda::gemm::expands(args); };
  CHECK(expands());
  args.c_dtype = dtypes::bf16;
  CHECK(expands());
  args.accumulate = true;
  CHECK_FALSE(expands());
  args.accumulate = false;
  args.a.stride = 24;  // rows of bf16 with gaps
  CHECK_FALSE(expands());
  args.a = args.b;  // integers
  CHECK_FALSE(expands());
  args.a.dtype = args.b.dtype = dtypes::nf4;
  CHECK(expands());
}

TEST_CASE("gemm on CUDA: fp64 is left to the CPU") {
  GemmArgs args;
  args.m = args.n = args.k = args.ldc = 4;
  for (const GemmKernel& kernel : cuda::cuda_gemm_kernels()) {
    GemmArgs x = args;
    x.a.dtype = dtypes::fp64;
    CHECK_FALSE(kernel.supports(x));
    x = args;
    x.a.dtype = x.b.dtype = dtypes::int8;
    x.c_dtype = dtypes::fp64;
    CHECK_FALSE(kernel.supports(x));
  }
}

}  // namespace
}  // namespace bitgrad
