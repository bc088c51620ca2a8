// Family reduce against the order of docs/numerics.md section 8, spelled out here on one sequence a block.
#include "kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "bitgrad/base/parallel.h"
#include "kernels/quantize.h"
#include "support/catch.h"
#include "support/everywhere.h"

namespace bitgrad {

using namespace kernels;
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Contributions already mapped, added in the one order: 16 lanes of a chunk, lanes by halves, chunks by neighbours.
float ordered_sum(const std::vector<float>& v) {
  std::vector<float> level;
  for (size_t chunk = 0; chunk < v.size(); chunk += 1024) {
    float lane[16] = {};
    for (size_t i = chunk; i < v.size() && i < chunk + 1024; ++i) lane[i % 16] += v[i];
    level.push_back((((lane[0] + lane[8]) + (lane[4] + lane[12])) + ((lane[2] + lane[10]) + (lane[6] + lane[14]))) +
                    (((lane[1] + lane[9]) + (lane[5] + lane[13])) + ((lane[3] + lane[11]) + (lane[7] + lane[15]))));
  }
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level.empty() ? 0.0f : level[0];
}

float expected_of(ReduceRule rule, const std::vector<float>& x, const std::vector<float>& times, float centre) {
  std::vector<float> v;
  float lowest = kInf, highest = -kInf, magnitude = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float a = x[i];
    if (!std::isnan(a)) {
      lowest = std::min(lowest, a);
      highest = std::max(highest, a);
      magnitude = std::max(magnitude, std::abs(a));
    }
    switch (rule) {
      case ReduceRule::kSum:
        v.push_back(times.empty() ? a : a * times[i]);
        break;
      case ReduceRule::kSumSquares:
        v.push_back(a * a);
        break;
      case ReduceRule::kSumAbs:
        v.push_back(std::abs(a));
        break;
      case ReduceRule::kSumPositive:
        v.push_back(a > 0 ? a : 0.0f);
        break;
      case ReduceRule::kCountPositive:
        v.push_back(a > 0 ? 1.0f : 0.0f);
        break;
      case ReduceRule::kSumAbsDiff:
        v.push_back(std::abs(a - centre));
        break;
      case ReduceRule::kSumAbsAbove:
        v.push_back(std::abs(a) > centre ? std::abs(a) : 0.0f);
        break;
      case ReduceRule::kCountAbsAbove:
        v.push_back(std::abs(a) > centre ? 1.0f : 0.0f);
        break;
      default:
        v.push_back((a - centre) * (a - centre));
    }
  }
  if (rule == ReduceRule::kMin) return lowest;
  if (rule == ReduceRule::kMax) return highest;
  return rule == ReduceRule::kAbsMax ? magnitude : ordered_sum(v);
}

struct Matrix {
  int64_t rows, cols, ld;
  std::vector<float> x, times;
  Matrix(int64_t r, int64_t c, int64_t pad, std::mt19937& random) : rows(r), cols(c), ld(c + pad) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int64_t i = 0; i < r * ld; ++i) {
      const uint32_t kind = random() % 12;
      x.push_back(kind == 0 ? -0.0f : kind == 1 ? 1e-41f : kind == 2 ? normal(random) * 1e6f : normal(random));
      times.push_back(normal(random));
    }
  }
};

// The elements of block j in row-major order.
std::vector<float> block(const Matrix& m, const std::vector<float>& data, ReduceAxis axis, int64_t group, int64_t j) {
  int64_t r0 = 0, r1 = m.rows, c0 = 0, c1 = m.cols;
  if (axis == ReduceAxis::kRows) r0 = j, r1 = j + 1;
  if (axis == ReduceAxis::kColumns) c0 = j, c1 = j + 1;
  if (axis == ReduceAxis::kGroups) {
    const int64_t per_row = (m.cols + group - 1) / group;
    r0 = j / per_row, r1 = r0 + 1;
    c0 = j % per_row * group, c1 = std::min(m.cols, c0 + group);
  }
  std::vector<float> out;
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) out.push_back(data[static_cast<size_t>(r * m.ld + c)]);
  }
  return out;
}

constexpr ReduceRule kLastRule = ReduceRule::kCountAbsAbove;
const std::vector<IsaLevel> kLevels = test::isa_levels();

// Every rule of one axis on every ISA.
void check_axis(const Matrix& m, ReduceAxis axis, int64_t group) {
  ReduceArgs args;
  args.axis = axis;
  args.rows = m.rows;
  args.cols = m.cols;
  args.group = group;
  args.x = m.x.data();
  args.ldx = m.ld;
  const size_t outputs = static_cast<size_t>(reduce_outputs(args));
  std::vector<float> centres, out(outputs + 1);
  for (size_t j = 0; j < outputs; ++j) centres.push_back(static_cast<float>(j % 7) * 0.3f - 1.0f);
  args.out = out.data();
  std::vector<std::vector<float>> blocks, times;
  for (size_t j = 0; j < outputs; ++j) {
    blocks.push_back(block(m, m.x, axis, group, static_cast<int64_t>(j)));
    times.push_back(block(m, m.times, axis, group, static_cast<int64_t>(j)));
  }
  for (int rule = 0; rule <= static_cast<int>(kLastRule) + 1; ++rule) {
    const bool product = rule > static_cast<int>(kLastRule);
    args.rule = product ? ReduceRule::kSum : static_cast<ReduceRule>(rule);
    args.times = product ? m.times.data() : nullptr;
    args.center = args.rule >= ReduceRule::kSumSquaredDiff ? centres.data() : nullptr;
    std::vector<float> expected;
    for (size_t j = 0; j < outputs; ++j)
      expected.push_back(expected_of(args.rule, blocks[j], product ? times[j] : std::vector<float>(), centres[j]));
    expected.push_back(-77.0f);  // behind the outputs
    for (IsaLevel level : kLevels) {
      set_isa_cap(level);
      std::fill(out.begin(), out.end(), -77.0f);
      uint32_t flags = 4;
      args.flags = &flags;
      reduce(args);
      INFO("rule " << rule << " axis " << static_cast<int>(axis) << " rows " << m.rows << " cols " << m.cols << " isa "
                   << static_cast<int>(level));
      CHECK(out == expected);
      CHECK(flags == 4);
    }
  }
}

}  // namespace

TEST_CASE("ranges from one read have the bits of the least and the largest number, zeros' signs too") {
  test::RestoreCpu restore;
  std::mt19937 random(77);
  const float special[] = {0.0f, -0.0f, kInf, -kInf, kNan, 1e-45f};
  for (const int64_t cols : {1, 3, 15, 16, 17, 31, 32, 64, 100, 1024, 1025, 1500, 2049, 4100})
    for (const int64_t group :
         {int64_t{1}, int64_t{5}, int64_t{16}, int64_t{32}, int64_t{33}, int64_t{1024}, int64_t{1030}, cols}) {
      const int64_t rows = static_cast<int64_t>(random() % 4), ldx = cols + static_cast<int64_t>(random() % 3);
      std::vector<float> x(static_cast<size_t>(rows * ldx + 1));
      const bool odd = random() % 2 == 0, zeros = random() % 3 == 0;
      for (float& v : x) v = zeros ? (random() % 2 == 0 ? 0.0f : -0.0f) : static_cast<float>(random() % 2001) - 1000;
      if (odd) x[random() % x.size()] = special[random() % std::size(special)];
      ReduceArgs args;
      args.axis = group == cols ? ReduceAxis::kRows : ReduceAxis::kGroups;
      args.rows = rows;
      args.cols = cols;
      args.group = group;
      args.x = x.data();
      args.ldx = ldx;
      const auto count = static_cast<size_t>(reduce_outputs(args));
      for (const IsaLevel level : kLevels) {
        set_isa_cap(level);
        std::vector<float> low(count + 1, 3.0f), high(count + 1, 3.0f), least(count + 1, 3.0f), most(count + 1, 3.0f);
        uint32_t flags = 8, flags_apart = 8;
        args.flags = &flags_apart;
        args.rule = ReduceRule::kMin;
        args.out = least.data();
        reduce(args);
        args.rule = ReduceRule::kMax;
        args.out = most.data();
        reduce(args);
        args.flags = &flags;
        args.out = low.data();
        reduce_ranges(args, high.data());
        INFO("cols " << cols << " group " << group << " rows " << rows);
        CHECK(std::memcmp(low.data(), least.data(), low.size() * sizeof(float)) == 0);
        CHECK(std::memcmp(high.data(), most.data(), high.size() * sizeof(float)) == 0);
        CHECK(flags == flags_apart);
      }
    }
}

TEST_CASE("every rule of reduce follows the one order for rows, columns, groups and all on every ISA") {
  test::RestoreCpu restore;
  std::mt19937 random(1);
  static constexpr int64_t kShapes[][2] = {{1, 1},    {3, 7},    {5, 15},   {17, 16},  {16, 64}, {33, 65}, {2, 1024},
                                           {2, 1025}, {1, 5000}, {1025, 3}, {3100, 2}, {0, 5},   {4, 0},   {0, 0}};
  for (const auto& shape : kShapes) {
    for (int64_t pad : {0, 3}) {
      const Matrix m(shape[0], shape[1], pad, random);
      check_axis(m, ReduceAxis::kAll, 0);
      check_axis(m, ReduceAxis::kRows, 0);
      if (m.cols <= 65) check_axis(m, ReduceAxis::kColumns, 0);
      if (m.rows <= 33) check_axis(m, ReduceAxis::kGroups, m.cols > 100 ? 1100 : 6);
    }
  }
}

TEST_CASE(
    "sums of many chunks join neighbours at every level, where an odd one moves up, in whole and ragged batches") {
  std::mt19937 random(4);
  for (const int64_t n :
       {255, 256, 2048, 16383, 16384, 16385, 31 * 1024, 32768, 32769, 65 * 1024, 97 * 1024 - 1, 300001})
    for (const ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kColumns, ReduceAxis::kGroups}) {
      const bool columns = axis == ReduceAxis::kColumns;
      const Matrix m(columns ? n : 1, columns ? 1 : n, 0, random);
      ReduceArgs args{ReduceRule::kSum, axis, m.rows, m.cols, 33 * 1024};
      args.x = m.x.data();
      args.ldx = m.ld;
      std::vector<float> out(static_cast<size_t>(reduce_outputs(args)));
      args.out = out.data();
      reduce(args);
      INFO(n << " along axis " << static_cast<int>(axis));
      for (size_t j = 0; j < out.size(); ++j)
        CHECK(out[j] == ordered_sum(block(m, m.x, axis, args.group, static_cast<int64_t>(j))));
    }
}

TEST_CASE("the order of a sum is not that of a plain loop, so the test above can fail") {
  std::vector<float> x(40, 1.0f);
  x[0] = 0x1p24f;
  float plain = 0;
  for (float v : x) plain += v;
  CHECK(plain == 0x1p24f);
  CHECK(sum(x.data(), 40) == 0x1p24f + 38.0f);
  CHECK(sum(x.data(), 40) == ordered_sum(x));
}

TEST_CASE("empty blocks give zero sums, infinite minima and maxima and a zero absmax") {
  ReduceArgs args;
  args.axis = ReduceAxis::kRows;
  args.rows = 2;
  float out[2];
  args.out = out;
  const float expected[] = {0, 0, 0, kInf, -kInf, 0, 0, 0, 0, 0, 0, 0};
  for (int rule = 0; rule < 12; ++rule) {
    args.rule = static_cast<ReduceRule>(rule);
    out[0] = out[1] = 5;
    reduce(args);
    CHECK(out[0] == expected[rule]);
    CHECK(out[1] == expected[rule]);
  }
  CHECK(sum(nullptr, 0) == 0.0f);
  CHECK(all_finite(nullptr, 0));
}

TEST_CASE("NaN and Inf raise the flag, and NaN is skipped by min, max and absmax") {
  test::RestoreCpu restore;
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    for (ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups}) {
      for (int trial = 0; trial < 9; ++trial) {
        const float bad = trial % 3 == 0 ? kNan : (trial % 3 == 1 ? kInf : -kInf);
        const size_t where = trial / 3 == 0 ? 10 * 21 + 20 : (trial / 3 == 1 ? 440 : 15);
        std::vector<float> x(21 * 21, -2.0f), out(21 * 21);
        x[where] = bad;
        x[where - 1] = 3.0f;
        uint32_t flags = 0;
        ReduceArgs args;
        args.axis = axis;
        args.rows = args.cols = args.ldx = 21;
        args.group = 4;
        args.x = x.data();
        args.out = out.data();
        args.flags = &flags;
        args.rule = ReduceRule::kMax;
        reduce(args);
        CHECK(flags == kFlagNonFinite);
        if (!std::isnan(bad)) continue;
        const auto smallest = [&] { return *std::min_element(out.begin(), out.begin() + reduce_outputs(args)); };
        const auto largest = [&] { return *std::max_element(out.begin(), out.begin() + reduce_outputs(args)); };
        CHECK(largest() == 3.0f);
        args.rule = ReduceRule::kAbsMax;
        reduce(args);
        CHECK(largest() == 3.0f);
        args.rule = ReduceRule::kMin;
        reduce(args);
        CHECK(smallest() == -2.0f);
        CHECK(std::none_of(out.begin(), out.begin() + reduce_outputs(args), [](float v) { return std::isnan(v); }));
        args.flags = nullptr;
        reduce(args);
      }
    }
    std::vector<float> x(70, 1.0f);
    CHECK(all_finite(x.data(), 70));
    for (size_t i : {0u, 15u, 16u, 69u}) {
      std::vector<float> y = x;
      y[i] = kNan;
      CHECK_FALSE(all_finite(y.data(), 70));
    }
    x[69] = 3.4e38f;
    CHECK(all_finite(x.data(), 70));
  }
}

TEST_CASE("reduce gives the same bits for 1, 2 and 4 threads") {
  test::RestoreCpu restore;
  std::mt19937 random(2);
  const Matrix m(1500, 131, 1, random);
  for (ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups}) {
    ReduceArgs args;
    args.axis = axis;
    args.rows = m.rows;
    args.cols = m.cols;
    args.group = 50;
    args.x = m.x.data();
    args.ldx = m.ld;
    std::vector<float> first(static_cast<size_t>(reduce_outputs(args)));
    args.out = first.data();
    set_num_threads(1);
    reduce(args);
    for (int threads : {2, 4}) {
      std::vector<float> out(first.size());
      args.out = out.data();
      set_num_threads(threads);
      reduce(args);
      CHECK(out == first);
    }
  }
}

TEST_CASE("the shorthands are the sums of one row") {
  std::mt19937 random(3);
  const Matrix m(1, 3001, 0, random);
  std::vector<float> squares;
  for (float v : m.x) squares.push_back(v * v);
  CHECK(sum(m.x.data(), 3001) == ordered_sum(m.x));
  CHECK(sum_squares(m.x.data(), 3001) == ordered_sum(squares));
}

}  // namespace bitgrad
