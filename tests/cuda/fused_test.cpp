// The fused kernels on an emulated device against the sequence of separate kernels, which the CPU runs: equal bits.
#include "kernels/quantize.h"

#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"
#include "cuda/both.h"
#include "kernels/reduce.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::differing_on_device;
using test::Outcome;
using test::Placed;

constexpr int64_t kRows[] = {1, 2, 63, 64, 65, 129}, kCols[] = {1, 15, 16, 17, 64, 65, 1023, 1024, 1025, 2100};

Placed<uint8_t> garbage(int64_t bytes) {
  return Placed<uint8_t>(std::vector<uint8_t>(static_cast<size_t>(bytes), 0xA5));
}
int64_t transposed_bytes(DType dtype, int64_t rows, int64_t cols) {
  return layouts::transposed.info().bytes(dtype, rows, cols);
}

struct BinarizeProblem {
  int64_t rows, cols, ldx, pad;
  bool nonfinite, alpha, transposed, row_ones, column_ones;
  uint32_t seed;
};

void run_binarize(const BinarizeProblem& p, Outcome& out) {
  const Placed<float> x(test::some_numbers(p.rows * p.ldx, p.seed, p.nonfinite));
  const int64_t stride = row_bytes_memory(dtypes::bint1, p.cols) + p.pad;
  const Placed<uint8_t> codes = garbage(p.rows * stride),
                        transposed = garbage(transposed_bytes(dtypes::bint1, p.rows, p.cols));
  const Placed<float> alpha(std::vector<float>(static_cast<size_t>(p.rows), 9.0f));
  const Placed<int32_t> row_ones(std::vector<int32_t>(static_cast<size_t>(p.rows), 9)),
      column_ones(std::vector<int32_t>(static_cast<size_t>(p.cols), 9));
  const Placed<uint32_t> flags({8u}), alpha_flags({16u});
  BinarizeArgs args;
  args.rows = p.rows;
  args.cols = p.cols;
  args.x = x.data();
  args.ldx = p.ldx;
  args.codes = codes.data();
  args.stride = stride;
  args.flags = flags.data();
  args.alpha_flags = alpha_flags.data();
  if (p.alpha) args.alpha = alpha.data();
  if (p.transposed) args.transposed = transposed.data();
  if (p.row_ones) args.row_ones = row_ones.data();
  if (p.column_ones) args.column_ones = column_ones.data();
  binarize(args);
  out.add(codes);
  out.add(transposed);
  out.add(alpha);
  out.add(row_ones);
  out.add(column_ones);
  out.add(flags);
  out.add(alpha_flags);
}

}  // namespace

TEST_CASE("binarize on CUDA gives signs in both orders, alpha and counts of the separate kernels") {
  std::mt19937 random(1);
  for (const int64_t rows : kRows)
    for (const int64_t cols : kCols) {
      if (rows > 65 && cols > 1024) continue;
      const BinarizeProblem p{rows,
                              cols,
                              cols + static_cast<int64_t>(random() % 3),
                              static_cast<int64_t>(random() % 2) * 8,
                              random() % 4 == 0,
                              random() % 4 != 0,
                              random() % 4 != 0,
                              random() % 4 != 0,
                              random() % 4 != 0,
                              static_cast<uint32_t>(random())};
      INFO(rows << " x " << cols << ", ldx " << p.ldx << ", nonfinite " << p.nonfinite << ", wanted " << p.alpha
                << p.transposed << p.row_ones << p.column_ones);
      CHECK(differing_on_device([&](Outcome& out) { run_binarize(p, out); }) == 0);
    }
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 70}, {70, 0}})
    CHECK(differing_on_device([&, r = rows, c = cols](Outcome& out) {
            run_binarize({r, c, c, 0, false, true, true, true, true, 1}, out);
          }) == 0);
}

TEST_CASE("binarize gives what quantize, reduce and a count of bits give, on the CPU") {
  const int64_t rows = 37, cols = 1500;
  const std::vector<float> x = test::some_numbers(rows * cols, 5);
  const int64_t stride = row_bytes_memory(dtypes::bint1, cols),
                transposed_stride = row_bytes_memory(dtypes::bint1, rows);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * stride)),
      transposed(static_cast<size_t>(transposed_bytes(dtypes::bint1, rows, cols)));
  std::vector<float> alpha(rows);
  std::vector<int32_t> row_ones(rows), column_ones(cols);
  BinarizeArgs args{rows, cols, x.data(), cols, codes.data(), stride, transposed.data(), alpha.data()};
  args.row_ones = row_ones.data();
  args.column_ones = column_ones.data();
  binarize(args);
  std::vector<float> mean(rows);
  ReduceArgs sums{ReduceRule::kSumAbs, ReduceAxis::kRows, rows, cols};
  sums.x = x.data();
  sums.ldx = cols;
  sums.out = mean.data();
  reduce(sums);
  std::vector<int32_t> of_column(cols, 0);
  for (int64_t r = 0; r < rows; ++r) {
    int32_t ones = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const uint32_t bit = x[static_cast<size_t>(r * cols + c)] >= 0.0f ? 1 : 0;
      REQUIRE(load_raw(codes.data() + r * stride, c, 1) == bit);
      REQUIRE(load_raw(transposed.data() + c * transposed_stride, r, 1) == bit);
      ones += static_cast<int32_t>(bit);
      of_column[static_cast<size_t>(c)] += static_cast<int32_t>(bit);
    }
    CHECK(row_ones[static_cast<size_t>(r)] == ones);
    CHECK(alpha[static_cast<size_t>(r)] ==
          std::max(mean[static_cast<size_t>(r)] / static_cast<float>(cols), 0x1p-126f));
  }
  CHECK(column_ones == of_column);
}

TEST_CASE("binarize distinguishes non-finite numbers from a non-finite alpha, on the CPU") {
  for (const float bad : {1.0f, 3e38f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::vector<float> x{0.5f, -1.0f, bad, -bad};
    std::vector<uint64_t> codes(2);
    std::vector<float> alpha(2);
    uint32_t flags = 4, alpha_flags = 8;
    BinarizeArgs args{2, 2, x.data(), 2, codes.data(), 8, nullptr, alpha.data()};
    args.flags = &flags;
    args.alpha_flags = &alpha_flags;
    binarize(args);
    CHECK(alpha[0] == 0.75f);
    CHECK(flags == (std::isfinite(bad) ? 4u : 5u));
    CHECK(alpha_flags == (bad == 1.0f ? 8u : 9u));
  }
}

TEST_CASE("quantize_transposed on CUDA gives the codes, masks and flags of quantize and layout transposed of them") {
  std::mt19937 random(2);
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    for (int i = 0; i < 4; ++i) {
      const int64_t rows = kRows[random() % std::size(kRows)], cols = kCols[random() % 8];
      const bool codebook = dtype.kind() == DTypeKind::kCodebook, with_mask = random() % 2 == 0,
                 drawn = random() % 2 == 0;
      const CodeRule rule = codebook ? CodeRule::kCodebook : (i == 0 ? CodeRule::kSign : CodeRule::kInverse);
      const auto seed = static_cast<uint32_t>(random());
      const std::vector<float> numbers = test::some_numbers(rows * cols, seed, random() % 2 == 0);
      const RandomStream stream{5, Purpose::kUser, 3, 1};
      INFO(dtype << ' ' << rows << " x " << cols << " rule " << static_cast<int>(rule) << " drawn " << drawn);
      CHECK(differing_on_device([&](Outcome& out) {
              const Placed<float> x(numbers), scale(std::vector<float>(static_cast<size_t>(rows), 0.3f));
              const int64_t stride = row_bytes_memory(dtype, cols);
              const Placed<uint8_t> codes = garbage(rows * stride),
                                    transposed = garbage(transposed_bytes(dtype, rows, cols));
              const Placed<uint64_t> mask(std::vector<uint64_t>(static_cast<size_t>(rows * ((cols + 63) / 64)), 7));
              const Placed<uint32_t> flags({8u});
              QuantizeArgs args;
              args.rows = rows;
              args.cols = args.ldx = cols;
              args.x = x.data();
              args.dtype = dtype;
              args.codes = codes.data();
              args.stride = stride;
              args.rule = rule;
              args.lo = dtype.info().qmin;
              args.hi = dtype.info().qmax;
              args.scale.scale = scale.data();
              args.scale.row_step = 1;
              args.ste = SteRule::kClip;
              args.mask = with_mask ? mask.data() : nullptr;
              args.flags = flags.data();
              args.sr = drawn ? &stream : nullptr;
              args.first_element = 13;
              quantize_transposed(args, transposed.data());
              out.add(codes);
              out.add(transposed);
              out.add(mask);
              out.add(flags);
            }) == 0);
    }
  }
}

TEST_CASE("normalize_sign on CUDA gives the signs of normalize, per column and for all, with flags") {
  std::mt19937 random(3);
  for (const int64_t rows : {1, 5, 64})
    for (const int64_t cols : kCols)
      for (const int64_t step : {0, 1}) {
        const std::vector<float> numbers =
            test::some_numbers(rows * cols, static_cast<uint32_t>(random()), random() % 3 == 0);
        const auto params = [&](uint32_t seed) { return test::some_numbers(step == 0 ? 1 : cols, seed); };
        INFO(rows << " x " << cols << " step " << step);
        CHECK(differing_on_device([&](Outcome& out) {
                const Placed<float> x(numbers), mean(params(1)), inv(params(2)), gamma(params(3)), beta(params(4));
                const int64_t stride = row_bytes_memory(dtypes::bint1, cols) + 8;
                const Placed<uint8_t> codes = garbage(rows * stride);
                const Placed<uint32_t> flags({8u});
                NormalizeSignArgs args;
                args.norm = {rows, cols, x.data(), mean.data(), inv.data(), gamma.data(), beta.data(), step};
                args.codes = codes.data();
                args.stride = stride;
                args.flags = flags.data();
                normalize_sign(args);
                out.add(codes);
                out.add(flags);
              }) == 0);
      }
}

}  // namespace bitgrad
