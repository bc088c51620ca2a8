// Products of floats and codes by mma.sync of bf16: every form of the operands against sums in double.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "cuda/on_device.h"
#include "kernels/gemm_float_problem.h"
#include "support/catch.h"
#include "support/gemm_int_problem.h"
#include "support/shape_count.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::Problem;

// The sum of an element in double and the magnitude of what was added.
struct Reference {
  double sum = 0, magnitude = 0;
};
Reference reference(const Problem& p, int64_t i, int64_t j) {
  Reference out;
  const auto add = [&](double term, double size) {
    out.sum += term;
    out.magnitude += size;
  };
  const ScaleMap& map = p.b.map;
  for (int64_t k = 0; k < p.k; ++k) {
    const int64_t at = p.b_k_major ? map.index(k, j) : map.index(j, k);
    const double a = p.a_at(i, k), q = p.b_number(j, k), s = map.scale == nullptr ? 1.0 : map.scale[at];
    const double z = map.zero == nullptr ? 0 : map.zero[at], m = map.offset == nullptr ? 0 : map.offset[at];
    add(a * (s * (q - z) + m), std::fabs(a) * (s * (std::fabs(q) + std::fabs(z)) + std::fabs(m)));
  }
  if (!p.bias.empty()) add(p.bias[static_cast<size_t>(j)], std::fabs(p.bias[static_cast<size_t>(j)]));
  return out;
}
float element(DType dtype, const std::vector<uint8_t>& c, int64_t at) {
  const uint8_t* p = c.data() + at * dtype.bits() / 8;
  uint32_t word = 0;
  std::memcpy(&word, p, static_cast<size_t>(dtype.bits() / 8));
  return dtype == dtypes::fp32 ? std::bit_cast<float>(word) : bf16_to_float(static_cast<uint16_t>(word));
}

// Numerics section 4, parts3: products are exact; (k + 8) roundings of sums, one of bf16.
void check_product(const GemmKernel& kernel, const Problem& p, int64_t shift) {
  std::vector<uint8_t> c = p.c_before, rest = c;
  test::run_on_device(kernel, p.args(c.data()), shift);
  const int64_t size = p.c_dtype.bits() / 8;
  int64_t bad = 0;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * (p.n + p.gap) + j;
      Reference r = reference(p, i, j);
      const double old = p.accumulate ? element(p.c_dtype, p.c_before, at) : 0;
      r.sum += old;
      r.magnitude += std::fabs(old);
      const double unit = p.c_dtype == dtypes::fp32 ? 0 : std::fabs(r.sum) * (p.sr != nullptr ? 0x1p-7 : 0x1p-8);
      const double bound = static_cast<double>(p.k + 8) * 0x1p-24 * r.magnitude * 1.001 + unit;
      bad += !(std::fabs(element(p.c_dtype, c, at) - r.sum) <= bound + 0x1p-130);
      std::memcpy(&rest[static_cast<size_t>(at * size)], &c[static_cast<size_t>(at * size)], static_cast<size_t>(size));
    }
  }
  CHECK(bad == 0);
  CHECK((rest == c));  // nothing but C's elements was written
}

constexpr int64_t kFree[] = {1, 7, 16, 31, 33, 63, 65, 127, 128, 129, 140};
constexpr int64_t kDeep[] = {0, 1, 2, 15, 31, 32, 33, 63, 64, 65, 96, 97, 127, 160, 200};

std::vector<DType> integer_codes() {
  std::vector<DType> list;
  for (const DType d : all_dtypes())
    if (d.is_code() && d.kind() != DTypeKind::kCodebook) list.push_back(d);
  return list;
}

struct Form {
  bool a, b;  // stored [k, free]
};
// How B's scales lie: 0 none, 1 per tensor, 2 per n, 3 along k, 4 along k and n.
void add_scales(Problem& p, int way, std::mt19937& rng) {
  static constexpr const char* kKinds[] = {"scale", "zero", "offset"};
  const int64_t group = 32 * static_cast<int64_t>(1 + rng() % 3), blocks = p.n / 64 + 1;
  const std::string kind = p.b_k_major ? "scale" : kKinds[rng() % 3];
  if (way == 1) p.b.add_parameters(kind, 1, 0, 1, 0, rng);
  if (way == 2) p.b.add_parameters(kind, 1, p.b_k_major ? 0 : 1, 1, p.b_k_major ? 1 : 0, rng);
  if (way == 3 && p.b_k_major) p.b.add_parameters(kind, 1 + static_cast<int64_t>(rng() % 2), 1, 1, 0, rng);
  if (way == 3 && !p.b_k_major) p.b.add_parameters(kind, 1, 0, group, 1, rng);
  if (way == 4 && p.b_k_major) p.b.add_parameters(kind, 1, blocks, 64, 1, rng);
  if (way == 4 && !p.b_k_major)
    p.b.add_parameters(kind, 1 + static_cast<int64_t>(rng() % 3), p.k / group + 1, group, 1, rng);
}

TEST_CASE("gemm on CUDA: floats times codes by mma.sync stay within the bound of fp32 sums") {
  std::mt19937 rng(62);
  const GemmKernel &narrow = test::cuda_kernel("gemm_bf16_w_mma"), &wide = test::cuda_kernel("gemm_f32_w_mma");
  const std::vector<DType> codes = integer_codes();
  constexpr DType activations[] = {dtypes::int8, dtypes::bint1, dtypes::uint4, dtypes::ternary};
  const RandomStream stream{9, Purpose::kGradAccumulate, 3, 4};
  int taken[3][2][5] = {};
  for (int i = 0; i < test::shape_count(240); ++i) {
    constexpr Form kForms[] = {{false, false}, {false, true}, {true, true}};
    const int form = i % 3, way = static_cast<int>(rng() % 5);
    const DType da = rng() % 2 == 0 ? dtypes::fp32 : dtypes::bf16;
    DType db = codes[rng() % codes.size()];
    if (form == 2 && rng() % 4 != 0) db = activations[rng() % 4];
    Problem p(da, kForms[form].a, db, kForms[form].b, kFree[rng() % 11], kFree[rng() % 11], kDeep[rng() % 15], rng);
    add_scales(p, way, rng);
    p.fold = rng() % 2 == 0 && p.b.map.zero == nullptr && p.b.map.offset == nullptr && way < 4;
    if (rng() % 3 == 0) p.add_bias(rng);
    p.accumulate = rng() % 4 == 0;
    if (rng() % 3 == 0) p.c_dtype = dtypes::bf16;
    if (rng() % 2 == 0) p.sr = &stream;
    if (rng() % 3 == 0) p.gap = 4 - p.n % 4;
    const GemmArgs args = p.args(nullptr);
    const bool power = (db.bits() & (db.bits() - 1)) == 0;
    INFO(da << (p.a_k_major ? " k-major x " : " x ") << db << (p.b_k_major ? " k-major" : "") << ", m " << p.m << " n "
            << p.n << " k " << p.k << " scales " << way << " to " << p.c_dtype);
    if (form == 2 && !power) {
      CHECK_FALSE((narrow.supports(args) || wide.supports(args)));
      continue;
    }
    const bool folds = p.b_k_major && way >= 3;
    CHECK(narrow.supports(args) == (da == dtypes::bf16 && !folds));
    CHECK(wide.supports(args) == !narrow.supports(args));
    ++taken[form][da == dtypes::fp32][way];
    check_product(narrow.supports(args) ? narrow : wide, p, static_cast<int64_t>(rng() % 3) * 8);
  }
  if (!test::all_shapes(240)) return;
  for (const auto& form : taken)
    for (const auto& type : form)
      for (const int count : type) CHECK(count > 0);
}

TEST_CASE("gemm on CUDA: an element of floats times codes has the same bits in every tile") {
  std::mt19937 rng(63);
  for (const bool fp32 : {false, true}) {
    const GemmKernel& kernel = test::cuda_kernel(fp32 ? "gemm_f32_w_mma" : "gemm_bf16_w_mma");
    Problem p(fp32 ? dtypes::fp32 : dtypes::bf16, false, dtypes::int4, false, 150, 140, 100, rng);
    p.b.add_parameters("offset", 1, 4, 32, 1, rng);
    std::vector<uint8_t> whole = p.c_before, part = p.c_before;
    test::run_on_device(kernel, p.args(whole.data()));
    GemmArgs args = p.args(part.data());
    args.m = 3, args.n = 5;
    args.a.data = static_cast<const uint8_t*>(args.a.data) + 133 * args.a.stride;
    args.b.data = static_cast<const uint8_t*>(args.b.data) + 130 * args.b.stride;
    args.b.scale.scale += 4 * 130;
    args.b.scale.offset += 4 * 130;
    test::run_on_device(kernel, args);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        const float mine = element(dtypes::fp32, part, i * args.ldc + j),
                    theirs = element(dtypes::fp32, whole, (133 + i) * args.ldc + 130 + j);
        CHECK(std::bit_cast<uint32_t>(mine) == std::bit_cast<uint32_t>(theirs));
      }
  }
}

TEST_CASE("gemm on CUDA: an Inf or NaN among floats reaches its row of the product and no other") {
  std::mt19937 rng(64);
  for (const DType da : {dtypes::fp32, dtypes::bf16})
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      Problem p(da, false, dtypes::bint1, false, 130, 9, 70, rng);
      std::vector<double> row(70, 1.0);
      row[69] = bad;
      pack_row(da, row.data(), 70, p.a.bytes.data() + 129 * p.a.stride);
      std::vector<uint8_t> c = p.c_before;
      test::run_on_device(test::cuda_kernel(da == dtypes::fp32 ? "gemm_f32_w_mma" : "gemm_bf16_w_mma"),
                          p.args(c.data()));
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j)
          CHECK(std::isfinite(element(dtypes::fp32, c, i * (p.n + p.gap) + j)) == (i != 129));
    }
}

TEST_CASE("gemm on CUDA: unsupported operands of floats times codes by mma.sync") {
  const GemmKernel &narrow = test::cuda_kernel("gemm_bf16_w_mma"), &wide = test::cuda_kernel("gemm_f32_w_mma");
  const auto taken = [&](const GemmArgs& args) { return narrow.supports(args) || wide.supports(args); };
  static const float kScale = 1;
  static const int32_t kZero = 1;
  GemmArgs args;
  args.m = args.n = args.k = args.ldc = 64;
  args.a = {nullptr, dtypes::fp32, layouts::canonical, 256, false, {}};
  args.b = {nullptr, dtypes::int4, layouts::canonical, 32, false, {}};
  CHECK(taken(args));
  const auto refused = [&](auto change) {
    GemmArgs changed = args;
    change(changed);
    return !taken(changed);
  };
  CHECK(refused([](GemmArgs& x) { x.b.dtype = dtypes::nf4; }));
  CHECK(refused([](GemmArgs& x) { x.b.dtype = dtypes::bf16; }));
  CHECK(refused([](GemmArgs& x) { x.a.dtype = dtypes::int8; }));
  CHECK(refused([](GemmArgs& x) { x.a.dtype = dtypes::fp16; }));
  CHECK(refused([](GemmArgs& x) { x.a.scale.scale = &kScale; }));
  CHECK(refused([](GemmArgs& x) { x.a.k_major = true; }));
  CHECK(refused([](GemmArgs& x) { x.c_dtype = dtypes::int32; }));
  CHECK(refused([](GemmArgs& x) { x.b.scale = {&kScale, nullptr, nullptr, 4, 1, 1, 16}; }));  // groups of 16
  CHECK_FALSE(refused([](GemmArgs& x) { x.b.scale = {&kScale, nullptr, nullptr, 2, 1, 1, 32}; }));
  args.b.k_major = true;
  CHECK_FALSE(refused([](GemmArgs& x) { x.b.scale = {&kScale, nullptr, nullptr, 1, 1, 1, 64}; }));
  CHECK(refused([](GemmArgs& x) { x.b.scale = {&kScale, nullptr, nullptr, 1, 1, 1, 32}; }));  // within a warp
  CHECK(refused([](GemmArgs& x) { x.b.scale = {&kScale, &kZero, nullptr, 1, 0, 1, 1}; }));
}

}  // namespace
}  // namespace bitgrad
