// Family reduce on emulated devices, bit for bit as on the CPU: the order of docs/numerics.md section 8 whatever the
// launch.
#include "bitgrad/kernels/reduce.h"

#include <algorithm>

#include "bitgrad/kernels/kernel_table.h"
#include "bitgrad/kernels/quantize.h"
#include "both.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

constexpr int kRules = static_cast<int>(ReduceRule::kCountAbsAbove) + 1;

// Numbers whose sums stay finite, so that two orders differ in bits.
std::vector<float> tame(int64_t n, uint32_t seed, bool nonfinite = false) {
  std::vector<float> x = some_numbers(n, seed, nonfinite);
  for (float& v : x) v = std::isfinite(v) && std::abs(v) > 1e30f ? v * 1e-35f : v;
  return x;
}

struct Shape {
  int64_t rows, cols, group, pad;  // ldx = cols + pad
};

// Every output of one reduction, with its flag word; x has `nonfinite` numbers where asked for.
void run_one(Outcome& out, ReduceRule rule, ReduceAxis axis, const Shape& s, int64_t shift, bool times,
             bool nonfinite) {
  ReduceArgs args;
  args.rule = rule;
  args.axis = axis;
  args.rows = s.rows;
  args.cols = s.cols;
  args.group = s.group;
  args.ldx = s.cols + s.pad;
  const int64_t n = s.rows * args.ldx, outputs = reduce_outputs(args);
  // NaN behind the matrix: whoever reads there raises the flag.
  std::vector<float> numbers = tame(n, 1, nonfinite);
  numbers.resize(numbers.size() + static_cast<size_t>(std::min<int64_t>(32 * args.ldx, 4096)), std::nanf(""));
  const Placed<float> x(numbers, shift), t(tame(n, 2), shift);
  const Placed<float> center(tame(outputs, 3), shift),
      result(std::vector<float>(static_cast<size_t>(outputs) + 2, -9.0f));
  const Placed<uint32_t> flags(std::vector<uint32_t>{8});
  const bool with_center = rule >= ReduceRule::kSumSquaredDiff;
  args.x = x.data();
  args.times = times ? t.data() : nullptr;
  args.center = with_center ? center.data() : nullptr;
  args.out = result.data();
  args.flags = flags.data();
  reduce(args);
  out.add(result);
  out.add(flags);
}

int64_t differing_reduction(ReduceRule rule, ReduceAxis axis, const Shape& s, int64_t shift, bool times = false,
                            bool nonfinite = false) {
  return differing_on_device([&](Outcome& out) { run_one(out, rule, axis, s, shift, times, nonfinite); });
}

const std::vector<ReduceAxis> kAxes{ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups};

TEST_CASE("Every rule and axis on the device has the bits of the CPU") {
  const std::vector<Shape> shapes{{1, 1, 1, 0}, {3, 17, 5, 2}, {5, 1025, 100, 0}, {40, 33, 32, 3}, {2, 2500, 1100, 1}};
  for (int rule = 0; rule < kRules; ++rule) {
    for (const ReduceAxis axis : kAxes) {
      for (const Shape& s : shapes) {
        CAPTURE(rule, static_cast<int>(axis), s.rows, s.cols);
        CHECK(differing_reduction(static_cast<ReduceRule>(rule), axis, s, 1) == 0);
      }
    }
  }
}

TEST_CASE("Sums of the device at and past the edges of lanes, chunks and batches") {
  for (const int64_t n :
       {0, 1, 15, 16, 17, 255, 256, 257, 1023, 1024, 1025, 2048, 16383, 16384, 16385, 32768, 32769, 70001}) {
    CAPTURE(n);
    CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kAll, {1, n, 1, 0}, n % 3) == 0);
    CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kRows, {2, n, 1, 1}, n % 3) == 0);
    CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kColumns, {n, 3, 1, 0}, n % 3) == 0);
    CHECK(differing_reduction(ReduceRule::kSumAbs, ReduceAxis::kAll, {3, n, 1, 5}, n % 3) == 0);
  }
}

TEST_CASE("A sum of many chunks: an odd one moves up at every level") {
  // 1, 2, 3 partial results of 32 chunks, whole and ragged.
  for (const int64_t chunks : {3, 5, 7, 31, 33, 63, 64, 65, 97}) {
    CAPTURE(chunks);
    CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kAll, {1, chunks * 1024 - 1, 1, 0}, 0) == 0);
    CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kGroups, {1, chunks * 1024 - 1, 33 * 1024, 0}, 0) == 0);
  }
  CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kAll, {1, (1 << 20) + 3, 1, 0}, 1) == 0);
}

TEST_CASE("Sums of more chunks than one block joins, on the device", "[slow]") {
  // 2049 and more batches of 32 chunks would be 67 million numbers; columns have a partial result a chunk.
  CHECK(differing_reduction(ReduceRule::kSum, ReduceAxis::kColumns, {2048 * 1024 + 5, 1, 1, 0}, 0) == 0);
}

TEST_CASE("Sums of products, and sums of a matrix with a gap between its rows") {
  for (const ReduceAxis axis : kAxes) {
    CAPTURE(static_cast<int>(axis));
    CHECK(differing_reduction(ReduceRule::kSum, axis, {9, 700, 64, 0}, 1, true) == 0);
    CHECK(differing_reduction(ReduceRule::kSum, axis, {9, 700, 64, 13}, 0, true) == 0);
  }
}

TEST_CASE("NaN is skipped by the rules of extremes, and every rule raises the flag") {
  for (int rule = 0; rule < kRules; ++rule) {
    for (const ReduceAxis axis : kAxes) {
      for (const bool nonfinite : {false, true}) {
        CAPTURE(rule, static_cast<int>(axis), nonfinite);
        const Shape s{20, 130, 32, 0};
        CHECK(differing_reduction(static_cast<ReduceRule>(rule), axis, s, 0, false, nonfinite) == 0);
        Outcome out;
        const DeviceGuard guard(Device::cuda());
        run_one(out, static_cast<ReduceRule>(rule), axis, s, 0, false, nonfinite);
        CHECK(out.bytes[0] == (nonfinite ? 8 | kFlagNonFinite : 8));
      }
    }
  }
}

TEST_CASE("No rows, no columns: what the empty sum is") {
  for (int rule = 0; rule < kRules; ++rule) {
    CAPTURE(rule);
    for (const Shape& s : {Shape{0, 5, 2, 0}, Shape{3, 0, 2, 0}}) {
      for (const ReduceAxis axis : kAxes) CHECK(differing_reduction(static_cast<ReduceRule>(rule), axis, s, 0) == 0);
    }
  }
}

TEST_CASE("Ranges of rows and groups on the device") {
  for (const Shape& s : {Shape{1, 1, 1, 0}, Shape{7, 64, 16, 0}, Shape{3, 1000, 128, 5}, Shape{5, 33, 64, 0},
                         Shape{5, 33, 34, 0}, Shape{2, 5000, 1500, 0}, Shape{2, 40000, 36000, 1}}) {
    for (const ReduceAxis axis : {ReduceAxis::kRows, ReduceAxis::kGroups}) {
      for (const bool nonfinite : {false, true}) {
        CAPTURE(s.rows, s.cols, s.group, static_cast<int>(axis), nonfinite);
        CHECK(differing_on_device([&](Outcome& out) {
                ReduceArgs args;
                args.axis = axis;
                args.rows = s.rows;
                args.cols = s.cols;
                args.group = s.group;
                args.ldx = s.cols + s.pad;
                const int64_t outputs = reduce_outputs(args);
                const Placed<float> x(tame(s.rows * args.ldx, 5, nonfinite), 1);
                const Placed<float> low(std::vector<float>(static_cast<size_t>(outputs) + 1, -9.0f));
                const Placed<float> high(std::vector<float>(static_cast<size_t>(outputs) + 1, -9.0f));
                const Placed<uint32_t> flags(std::vector<uint32_t>{0});
                args.x = x.data();
                args.out = low.data();
                args.flags = nonfinite || s.rows > 2 ? flags.data() : nullptr;
                reduce_ranges(args, high.data());
                out.add(low);
                out.add(high);
                out.add(flags);
              }) == 0);
      }
    }
  }
}

TEST_CASE("The sums of a normalisation's backward on the device") {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 31}, {33, 32}, {64, 65}, {1025, 3}, {2100, 40}}) {
    for (const int64_t step : {0, 1}) {
      const int64_t r = rows, c = cols;
      CAPTURE(r, c, step);
      CHECK(differing_on_device([&](Outcome& out) {
              const int64_t params = step == 0 ? 1 : c;
              const Placed<float> gy(tame(r * c, 1), 1), x(tame(r * c, 2));
              const Placed<float> mean(tame(params, 3)), inv(tame(params, 4));
              const Placed<float> sum(std::vector<float>(static_cast<size_t>(params) + 1, -9.0f));
              const Placed<float> product(std::vector<float>(static_cast<size_t>(params) + 1, -9.0f));
              norm_sums({r, c, gy.data(), x.data(), mean.data(), inv.data(), step, sum.data(), product.data()});
              out.add(sum);
              out.add(product);
            }) == 0);
    }
  }
}

TEST_CASE("Numbers that are not finite are found wherever they lie") {
  const DeviceGuard guard(Device::cuda());
  for (const int64_t n : {0, 1, 4, 5, 255, 257, 1030}) {
    for (const int64_t shift : {0, 1}) {
      std::vector<float> values(static_cast<size_t>(n), 3e38f);
      CHECK(all_finite(Placed<float>(values, shift).data(), n));
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        if (n == 0) continue;
        std::vector<float> bad = values;
        bad[static_cast<size_t>(at)] = at % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
        CHECK_FALSE(all_finite(Placed<float>(bad, shift).data(), n));
      }
    }
  }
}

TEST_CASE("The host gets sums of the device") {
  const std::vector<float> values = tame(5000, 1);
  const float expected = sum(values.data(), 5000), squares = sum_squares(values.data(), 5000);
  const DeviceGuard guard(Device::cuda());
  const Placed<float> x(values);
  CHECK(sum(x.data(), 5000) == expected);
  CHECK(sum_squares(x.data(), 5000) == squares);
}

}  // namespace
}  // namespace bitgrad::test
