// Kernels that take fp32 or bf16: bf16 gives the bits of the widened values, rounded once, on every ISA.
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/narrow_arrays.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

constexpr int kRules = static_cast<int>(ReduceRule::kCountAbsAbove) + 1;

struct Extent {
  int64_t rows, cols, group, pad;  // ldx = cols + pad
};
const std::vector<Extent> kExtents{{1, 1, 1, 0},       {3, 17, 5, 2},      {5, 1025, 100, 0}, {40, 33, 32, 3},
                                   {2, 2500, 1100, 1}, {1030, 3, 2, 0},    {37, 64, 16, 0},   {2, 5000, 2048, 1},
                                   {1025, 65, 64, 0},  {16, 128, 1024, 0}, {300, 16, 7, 1}};

// The outputs of a reduction, then its flag.
std::vector<float> reduced(ReduceArgs args, const Extent& e, const FloatsIn& x, bool flags) {
  args.rows = e.rows;
  args.cols = e.cols;
  args.group = e.group;
  args.x = x;
  args.ldx = e.cols + e.pad;
  std::vector<float> out(static_cast<size_t>(reduce_outputs(args)) + 1, -9.0f);
  uint32_t flag = 0;
  args.out = out.data();
  args.flags = flags ? &flag : nullptr;
  reduce(args);
  out.push_back(static_cast<float>(flag));
  return out;
}

// Ranges of rows or groups, then the flag.
std::vector<float> ranges_of(ReduceAxis axis, const Extent& e, const FloatsIn& x) {
  ReduceArgs args;
  args.axis = axis;
  args.rows = e.rows;
  args.cols = e.cols;
  args.group = e.group;
  args.x = x;
  args.ldx = e.cols + e.pad;
  const size_t outputs = static_cast<size_t>(reduce_outputs(args));
  std::vector<float> out(2 * outputs, -9.0f);
  uint32_t flag = 0;
  args.out = out.data();
  args.flags = &flag;
  reduce_ranges(args, out.data() + outputs);
  out.push_back(static_cast<float>(flag));
  return out;
}

// Per-column values, or one for all columns.
std::vector<float> column_values(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> some(-1.25f, 1.25f);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(some(random));
  return x;
}

const int64_t kMatrices[][2] = {{0, 3},     {1, 1},     {5, 7},     {33, 16},  {16, 32},
                                {1030, 64}, {17, 65},   {130, 100}, {9, 1024}, {3, 1025},
                                {700, 2},   {2, 16390}, {1025, 48}, {2050, 3}, {40, 128}};

}  // namespace

TEST_CASE("reductions of bf16 have the bits of those of the widened values, for every rule and axis") {
  for (const bool nonfinite : {false, true})
    for (const Extent& e : kExtents) {
      if (nonfinite && e.rows > 1000) continue;
      const NarrowSource x(e.rows * (e.cols + e.pad), 7, nonfinite);
      const std::vector<float> center = column_values(e.rows * e.cols, 8);
      for (const ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups}) {
        INFO(e.rows << " x " << e.cols << ", axis " << static_cast<int>(axis) << ", not finite " << nonfinite);
        check_everywhere([&] {
          int64_t wrong = 0;
          for (int rule = 0; rule < kRules; ++rule) {
            ReduceArgs args;
            args.rule = static_cast<ReduceRule>(rule);
            args.axis = axis;
            args.center = args.rule >= ReduceRule::kSumSquaredDiff ? center.data() : nullptr;
            const bool flags = rule % 2 == 0;
            wrong += differing_values(reduced(args, e, x.in(true), flags), reduced(args, e, x.in(false), flags));
          }
          return wrong == 0;
        });
      }
    }
}

TEST_CASE("sums of products with bf16 have the bits of those of the widened values") {
  for (const Extent& e : kExtents) {
    const NarrowSource x(e.rows * (e.cols + e.pad), 9);
    const std::vector<float> times = column_values(e.rows * (e.cols + e.pad), 10);
    for (const ReduceAxis axis : {ReduceAxis::kAll, ReduceAxis::kRows, ReduceAxis::kColumns, ReduceAxis::kGroups}) {
      INFO(e.rows << " x " << e.cols << ", axis " << static_cast<int>(axis));
      check_everywhere([&] {
        ReduceArgs args;
        args.axis = axis;
        args.times = times.data();
        return differing_values(reduced(args, e, x.in(true), false), reduced(args, e, x.in(false), false)) == 0;
      });
    }
  }
}

TEST_CASE("ranges of bf16 are those of the widened values") {
  for (const bool nonfinite : {false, true})
    for (const Extent& e : kExtents) {
      const NarrowSource x(e.rows * (e.cols + e.pad), 11, nonfinite);
      for (const ReduceAxis axis : {ReduceAxis::kRows, ReduceAxis::kGroups}) {
        INFO(e.rows << " x " << e.cols << ", axis " << static_cast<int>(axis) << ", not finite " << nonfinite);
        check_everywhere(
            [&] { return differing_values(ranges_of(axis, e, x.in(true)), ranges_of(axis, e, x.in(false))) == 0; });
      }
    }
}

TEST_CASE("norm_sums reads gy and x in fp32 or bf16, by rule clip and without, with the bits of fp32") {
  for (const auto& [rows, cols] : kMatrices)
    for (const int64_t step : {0, 1})
      for (const bool clip : {false, true}) {
        if (clip && (step == 0 || runs_on_device())) continue;  // a device has no clip rule
        const int64_t groups = step == 0 ? 1 : cols, r = rows, c = cols;
        INFO(r << " x " << c << ", step " << step << ", clip " << clip);
        const NarrowSource gy(r * c, 1), x(r * c, 2, clip);
        const std::vector<float> mean = column_values(groups, 3), inv = column_values(groups, 4),
                                 gamma = column_values(groups, 5), beta = column_values(groups, 6);
        const auto sums = [&](bool bf16_gy, bool bf16_x) {
          std::vector<float> out(static_cast<size_t>(2 * groups), -9.0f);
          NormSumsArgs args{r,          c,    gy.in(bf16_gy), x.in(bf16_x),       mean.data(),
                            inv.data(), step, out.data(),     out.data() + groups};
          if (clip) {
            args.clip_gamma = gamma.data();
            args.clip_beta = beta.data();
          }
          norm_sums(args);
          return out;
        };
        check_everywhere([&] {
          const std::vector<float> expected = sums(false, false);
          return differing_values(sums(true, true), expected) + differing_values(sums(true, false), expected) +
                     differing_values(sums(false, true), expected) ==
                 0;
        });
      }
}

TEST_CASE("normalize of bf16 is that of the widened values rounded once, in place or not") {
  for (const auto& [rows, cols] : kMatrices)
    for (const int64_t step : {0, 1})
      for (const bool in_place : {false, true}) {
        const int64_t groups = step == 0 ? 1 : cols, r = rows, c = cols;
        INFO(r << " x " << c << ", step " << step << ", in place " << in_place);
        const NarrowSource source(r * c, 12, true);
        const std::vector<float> mean = column_values(groups, 3), inv = column_values(groups, 4),
                                 gamma = column_values(groups, 5), beta = column_values(groups, 6);
        const auto result = [&](bool bf16) {
          NarrowSource x = source, apart(r * c + 1, 13);
          NarrowSource& y = in_place ? x : apart;
          normalize({r, c, x.in(bf16), mean.data(), inv.data(), gamma.data(), beta.data(), step, y.out(bf16)});
          return y.rounded(bf16);
        };
        check_everywhere([&] { return differing_values(result(true), result(false)) == 0; });
      }
}

TEST_CASE("normalize_backward reads and writes fp32 or bf16 with the bits of fp32, rounded once, in place or not") {
  for (const auto& [rows, cols] : kMatrices)
    for (const int64_t step : {0, 1})
      for (const bool clip : {false, true}) {
        if (clip && step == 0) continue;
        const int64_t groups = step == 0 ? 1 : cols, r = rows, c = cols;
        INFO(r << " x " << c << ", step " << step << ", clip " << clip);
        const NarrowSource x(r * c, 14), source(r * c, 15, true);
        const std::vector<float> mean = column_values(groups, 3), inv = column_values(groups, 4),
                                 gamma = column_values(groups, 5), beta = column_values(groups, 6),
                                 mg = column_values(groups, 7), mgx = column_values(groups, 8);
        const auto result = [&](bool bf16_x, bool bf16_gy, bool bf16_gx, bool in_place) {
          NarrowSource gy = source, apart(r * c + 1, 16);
          NarrowSource& gx = in_place ? gy : apart;
          normalize_backward({r, c, x.in(bf16_x), gy.in(bf16_gy), mean.data(), inv.data(), gamma.data(), mg.data(),
                              mgx.data(), step, gx.out(bf16_gx), clip ? beta.data() : nullptr});
          // All of an fp32 result counts, not only what rounding leaves.
          return std::pair(gx.rounded(bf16_gx), bf16_gx ? std::vector<float>() : gx.wide());
        };
        check_everywhere([&] {
          int64_t wrong = 0;
          for (const bool in_place : {false, true}) {
            const auto [rounded, wide] = result(false, false, false, in_place);
            for (int form = 1; form < 8; ++form) {
              const bool bf16_gy = (form & 2) != 0, bf16_gx = (form & 4) != 0;
              if (in_place && bf16_gy != bf16_gx) continue;
              const auto got = result((form & 1) != 0, bf16_gy, bf16_gx, in_place);
              wrong += differing_values(got.first, rounded) + (bf16_gx ? 0 : differing_values(got.second, wide));
            }
          }
          return wrong == 0;
        });
      }
}

}  // namespace bitgrad::test
