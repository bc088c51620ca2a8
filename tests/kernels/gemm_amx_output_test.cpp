// How the rows of the tile unit write C: fp32 rows that the loop writes itself, past the caches or not, must be the
// same, and nothing beside them may be touched.
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "kernels/gemm_amx_kernels.h"
#include "support/catch.h"
#include "support/gemm_reference.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::amx_kernels;
using test::CodeMatrix;
using test::Rng;
using test::uniform_int;

struct Line {
  alignas(64) float numbers[16];
};

// m x n of ldc numbers a row, `skip` behind the beginning of a line, among numbers that stay.
class Output {
 public:
  Output(int64_t m, int64_t ldc, int64_t skip) : lines_(static_cast<size_t>((m * ldc + skip) / 16 + 2)), skip_(skip) {
    for (int64_t i = 0; i < size(); ++i) at(i) = kBefore;
  }
  float* begin() { return &at(skip_); }
  // Whether all but the n first of every row are as they were.
  bool rest_untouched(int64_t m, int64_t n, int64_t ldc) {
    bool same = true;
    for (int64_t i = 0; i < size(); ++i) {
      const int64_t place = i - skip_;
      const bool inside = place >= 0 && place < m * ldc && place % ldc < n;
      same = same && (inside || at(i) == kBefore);
    }
    return same;
  }

 private:
  static constexpr float kBefore = -77.25f;
  int64_t size() const { return static_cast<int64_t>(lines_.size()) * 16; }
  float& at(int64_t i) { return lines_[static_cast<size_t>(i / 16)].numbers[i % 16]; }
  std::vector<Line> lines_;
  int64_t skip_;
};

uint64_t noise() {
  static Rng rng(97);
  return rng();
}

struct Scales {
  std::vector<float> a, b, bias;
  Scales(Rng& rng, int64_t m, int64_t n) {
    const auto fill = [&](std::vector<float>& x, int64_t count) {
      for (int64_t i = 0; i < count; ++i) x.push_back(std::ldexp(static_cast<float>(uniform_int(rng, 1, 999)), -9));
    };
    fill(a, m);
    fill(b, n);
    fill(bias, n);
  }
};

// Runs the row into an output that is written past the caches and into others that are not; returns whether it ran.
bool same_output(const GemmKernel& kernel, GemmArgs args, int64_t ldc) {
  std::vector<uint64_t> derived;
  test::derive_noisy(args.b, kernel.b_layout, args.n, args.k, derived, &noise);
  args.ldc = ldc;
  if (!kernel.supports(args)) return false;
  const auto run = [&](int64_t stride, int64_t skip) {
    Output c(args.m, stride, skip);
    args.c = c.begin();
    args.ldc = stride;
    kernel.run(args);
    CHECK(c.rest_untouched(args.m, args.n, stride));
    std::vector<float> dense;
    for (int64_t i = 0; i < args.m; ++i)
      dense.insert(dense.end(), c.begin() + i * stride, c.begin() + i * stride + args.n);
    return dense;
  };
  INFO(kernel.name << (kernel.needs == isa::kScalar ? " emulated" : ""));
  const std::vector<float> streamed = run(ldc, 0);
  CHECK((run(ldc, 1) == streamed));      // rows that do not begin at lines
  CHECK((run(ldc + 1, 0) == streamed));  // nor all of them
  return true;
}

// [cpu]: rows of the CPU
TEST_CASE("rows written past the caches are those written into them, for every kind of sum and scale", "[cpu]") {
  constexpr int64_t kM = 530, kN = 520, kLdc = 528;  // ends of a block of rows, of columns and of a line; 1.05 MiB
  Rng rng(1);
  const Scales scales(rng, kM, kN);
  int ran = 0;
  for (const SumOrder order : {SumOrder::kExact, SumOrder::kDigits3, SumOrder::kDigits2, SumOrder::kFree}) {
    for (const GemmKernel& kernel : amx_kernels(order)) {
      for (int way = 0; way < 4; ++way) {
        const int64_t k = way == 1 ? 200 : 40;
        const DType da = order == SumOrder::kExact     ? dtypes::int8
                         : order == SumOrder::kDigits3 ? dtypes::fp32
                                                       : dtypes::bf16;
        CodeMatrix a = test::random_codes(rng, dtypes::int8, kM, k * da.bits() / 8);
        // Numbers of every row between -2 and 2, none of them NaN or Inf.
        for (uint64_t& word : a.words)
          if (da != dtypes::int8) word &= da == dtypes::fp32 ? 0xBFFFFFFFBFFFFFFFu : 0xBFFFBFFFBFFFBFFFu;
        const DType db = kernel.b_layout == layouts::tiles16 ? dtypes::int4 : dtypes::bint1;
        const CodeMatrix b = test::random_codes(rng, db, kN, k);
        GemmArgs args;
        args.m = kM, args.n = kN, args.k = k;
        args.a = a.operand();
        args.a.dtype = da;
        args.b = b.operand();
        if (way % 2 == 1) args.b.scale.scale = scales.b.data(), args.b.scale.row_step = 1;
        if (way == 1 && da == dtypes::int8) args.a.scale.scale = scales.a.data(), args.a.scale.row_step = 1;
        if (way == 2) args.bias = scales.bias.data();
        ran += same_output(kernel, args, kLdc);
      }
    }
  }
  CHECK(ran >= 4 * 4);
}

}  // namespace
}  // namespace bitgrad
