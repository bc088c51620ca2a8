// Loops of networks of integers: every instruction set gives the codes of quant/fixed_point.h and nn/inference.h, over
// random sums and over ties.
#include "kernels/codes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/nn/inference.h"
#include "kernels/codes/loops.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using bitgrad::kernels::codes::kBlock;

namespace {

constexpr OutputRounding kRules[] = {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat,
                                     OutputRounding::kRuy};

// The tables that this CPU has.
std::vector<const codes::CodesLoops*> tables() {
  std::vector<const codes::CodesLoops*> out{&codes::loops_scalar()};
  if ((cpu_isa() & isa::kAvx2) != 0) out.push_back(&codes::loops_avx2());
  if ((cpu_isa() & isa::kAvx512) != 0) out.push_back(&codes::loops_avx512());
  return out;
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_{seed, Purpose::kInit, 0, 0} {}
  int64_t in(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(stream_.bits32(at_++) % static_cast<uint64_t>(hi - lo + 1));
  }
  int32_t any() { return static_cast<int32_t>(stream_.bits32(at_++)); }

 private:
  RandomStream stream_;
  uint64_t at_ = 0;
};

struct Numbers {
  std::vector<int32_t> bias, m, e;
  std::vector<float> factor;
};
Numbers numbers(Draws& draws, int64_t channels, int64_t most_left) {
  const auto size = static_cast<size_t>((channels + kBlock - 1) / kBlock * kBlock);
  Numbers out{std::vector<int32_t>(size), std::vector<int32_t>(size), std::vector<int32_t>(size),
              std::vector<float>(size)};
  for (size_t j = 0; j < static_cast<size_t>(channels); ++j) {
    const bool power = draws.in(0, 2) == 0;  // sums that are ties
    const FixedPoint f = draws.in(0, 9) == 0
                             ? FixedPoint{}
                             : FixedPoint{static_cast<int32_t>(power ? 1 << 30 : draws.in(1 << 30, 0x7FFFFFFF)),
                                          static_cast<int32_t>(draws.in(-31, most_left))};
    out.bias[j] = static_cast<int32_t>(draws.in(-5000, 5000));
    out.m[j] = f.m;
    out.e[j] = f.e;
    out.factor[j] = static_cast<float>(value_of(f));
  }
  return out;
}

// Sums of which many are ties or at the ends of int32.
std::vector<int32_t> sums(Draws& draws, size_t count, bool ends) {
  std::vector<int32_t> out(count);
  for (int32_t& x : out) {
    const int64_t kind = draws.in(0, ends ? 4 : 2);
    const int64_t half = int64_t{1} << draws.in(0, 20);
    if (kind == 0) x = static_cast<int32_t>(half * (2 * draws.in(-200, 200) + 1));
    if (kind == 1) x = static_cast<int32_t>(draws.in(-100000, 100000));
    if (kind == 2) x = static_cast<int32_t>(draws.in(-2000000000, 2000000000));
    if (kind == 3) x = draws.any();
    if (kind == 4) x = draws.in(0, 1) == 0 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  }
  return out;
}

inference::Requantize stage_as_node(const codes::Stage& s, int64_t j) {
  inference::Requantize op;
  op.rule = static_cast<OutputRounding>(s.rule);
  op.zero = s.zero;
  op.lo = s.lo;
  op.hi = s.hi;
  op.multiplier = {{s.m[j], s.e[j]}};
  op.factor = {s.factor[j]};
  return op;
}

}  // namespace

TEST_CASE("sums become the same codes on every instruction set") {
  Draws draws(1);
  int64_t ties = 0, at_bounds = 0, all = 0;
  for (const OutputRounding rule : kRules)
    for (const int64_t channels : {1, 3, 8, 9, 16, 17, 31, 64, 100})
      for (const int64_t most_left : {0, 0, 5})
        for (const bool with_bias : {false, true}) {
          const Numbers n = numbers(draws, channels, most_left);
          codes::Stage s{static_cast<codes::Rule>(rule), with_bias ? n.bias.data() : nullptr, n.m.data(), n.e.data(),
                         n.factor.data()};
          s.zero = static_cast<int32_t>(draws.in(-128, 127));
          s.lo = static_cast<int32_t>(draws.in(-128, 0));
          s.hi = static_cast<int32_t>(draws.in(s.lo, 127));
          if (draws.in(0, 1) == 0) s.lo = -128, s.hi = 127;
          s.left = std::any_of(n.e.begin(), n.e.end(), [](int32_t e) { return e > 0; });
          constexpr int64_t kRows = 40;
          const int64_t x_step = channels + 3, y_step = channels + 5;
          const std::vector<int32_t> x = sums(draws, static_cast<size_t>(kRows * x_step), !with_bias);
          for (const codes::CodesLoops* loops : tables()) {
            std::vector<int8_t> y(static_cast<size_t>(kRows * y_step), 99);
            loops->requantize_rows({s, kRows, channels, x.data(), x_step, y.data(), y_step});
            int64_t wrong = 0, touched = 0;
            for (int64_t r = 0; r < kRows; ++r) {
              for (int64_t j = 0; j < channels; ++j) {
                const int32_t sum =
                    x[static_cast<size_t>(r * x_step + j)] + (with_bias ? n.bias[static_cast<size_t>(j)] : 0);
                const int8_t code = y[static_cast<size_t>(r * y_step + j)];
                wrong += code != inference::code_of(stage_as_node(s, j), sum, 0) ? 1 : 0;
                const double exact = sum * value_of({n.m[static_cast<size_t>(j)], n.e[static_cast<size_t>(j)]});
                ties += std::abs(exact - std::trunc(exact)) == 0.5 ? 1 : 0;
                at_bounds += code == s.lo || code == s.hi ? 1 : 0;
                ++all;
              }
              for (int64_t j = channels; j < y_step; ++j)
                touched += y[static_cast<size_t>(r * y_step + j)] != 99 ? 1 : 0;
            }
            CHECK(wrong == 0);
            CHECK(touched == 0);
          }
        }
  CHECK(ties > 1000);
  CHECK(at_bounds < all / 2 + all / 3);
}

TEST_CASE("sums of codes are the same on every instruction set, for every pair") {
  std::vector<int8_t> a, b;
  for (int p = -128; p < 128; ++p)
    for (int q = -128; q < 128; ++q) a.push_back(static_cast<int8_t>(p)), b.push_back(static_cast<int8_t>(q));
  for (int i = 0; i < 5; ++i) a.push_back(1), b.push_back(static_cast<int8_t>(i));  // not a whole vector
  Draws draws(2);
  for (const OutputRounding rule : {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat})
    for (int trial = 0; trial < 12; ++trial) {
      inference::IntegerAdd op;
      op.rule = rule;
      const double s0 =
          std::ldexp(1.0 + 0.01 * static_cast<double>(draws.in(0, 99)), static_cast<int>(draws.in(-4, 3)));
      const double s1 = trial == 0 ? s0 : 0.37 * static_cast<double>(draws.in(1, 9));
      const double s_y = trial == 1 ? 0.0001 : 0.4 * (s0 + s1), twice = 2 * std::max(s0, s1);  // 1: to the left
      op.zero_in = {static_cast<int32_t>(draws.in(-128, 127)), static_cast<int32_t>(draws.in(-128, 127))};
      op.in = {fixed_point(s0 / twice), fixed_point(s1 / twice)};
      op.out = fixed_point(twice / (1048576.0 * s_y));
      int e = 0;
      (void)std::frexp(std::max(s0, s1) / s_y, &e);
      op.shift = trial == 2 ? 40 : 21 - e;  // 2: beyond 32 bits
      op.factor = {static_cast<int32_t>(std::rint(std::ldexp(s0 / s_y, 21 - e))),
                   static_cast<int32_t>(std::rint(std::ldexp(s1 / s_y, 21 - e)))};
      op.zero = static_cast<int32_t>(draws.in(-128, 127));
      op.lo = draws.in(-128, -20);
      op.hi = draws.in(20, 127);
      codes::Sum sum{static_cast<codes::Rule>(rule),
                     {op.zero_in[0], op.zero_in[1]},
                     {{op.in[0].m, op.in[0].e}, {op.in[1].m, op.in[1].e}},
                     {op.out.m, op.out.e},
                     {op.factor[0], op.factor[1]},
                     op.shift,
                     op.zero,
                     static_cast<int32_t>(op.lo),
                     static_cast<int32_t>(op.hi)};
      for (const codes::CodesLoops* loops : tables()) {
        std::vector<int8_t> y(a.size());
        loops->add_codes({sum, std::ssize(a), a.data(), b.data(), y.data()});
        int64_t wrong = 0;
        for (size_t i = 0; i < a.size(); ++i) wrong += y[i] != inference::code_of(op, a[i], b[i]) ? 1 : 0;
        INFO(enum_name(rule) << ' ' << trial);
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("a product that goes straight to codes has the codes of its sums") {
  if (!codes::has_product()) {
    WARN("skipped: no AVX-512 VNNI");
    return;
  }
  Draws draws(3);
  for (const OutputRounding rule : kRules)
    for (const int64_t channels : {1, 5, 16, 17, 32, 40, 64, 83, 128})
      for (const int64_t pixels : {1, 2, 3, 7, 16, 29}) {
        Numbers n = numbers(draws, channels, 0);
        if (pixels == 7) n.bias[0] = draws.in(0, 1) == 0 ? 2000000000 : -2000000000;  // beyond 2^30
        if (pixels == 29) n.bias[0] = (1 << 30) - 1 - 5 * 4 * 255 * 128;              // the last within it
        codes::Stage s{
            static_cast<codes::Rule>(rule), n.bias.data(), n.m.data(), n.e.data(), n.factor.data(), 3, -128, 127};
        if (pixels == 16) s.zero = -128, s.lo = -100, s.hi = 90;
        if (pixels == 2) s.zero = 127, s.lo = -7;
        constexpr int64_t kLines = 3, kPixel = 8, kGroups = 5;
        const int64_t x_pixel = 2 * kPixel, x_line = (pixels + 4) * x_pixel,
                      y_pixel = channels + (pixels == 29 ? 0 : 7), blocks = (channels + kBlock - 1) / kBlock;
        std::vector<uint8_t> x(static_cast<size_t>(kLines * x_line + 200));
        for (uint8_t& each : x) each = static_cast<uint8_t>(draws.in(0, 255));
        const std::vector<int32_t> offset{0, 4, 8, 20, 40};
        const auto count = static_cast<size_t>(blocks * kGroups * kBlock * 4);
        std::vector<int8_t> space(count + 64);
        int8_t* const w = space.data() + (64 - reinterpret_cast<uintptr_t>(space.data()) % 64) % 64;
        for (size_t i = 0; i < count; ++i) w[i] = static_cast<int8_t>(draws.in(-128, 127));
        std::vector<int8_t> y(static_cast<size_t>(kLines * pixels * y_pixel), 77);
        codes::product_codes({s, x.data(), x_line, x_pixel, kLines, pixels, channels, offset.data(), kGroups, w,
                              y.data(), pixels * y_pixel, y_pixel});
        int64_t wrong = 0, touched = 0;
        for (int64_t l = 0; l < kLines; ++l)
          for (int64_t p = 0; p < pixels; ++p)
            for (int64_t o = 0; o < y_pixel; ++o) {
              const int8_t code = y[static_cast<size_t>((l * pixels + p) * y_pixel + o)];
              if (o >= channels) {
                touched += code != 77 ? 1 : 0;
                continue;
              }
              int32_t sum = n.bias[static_cast<size_t>(o)];
              for (int64_t g = 0; g < kGroups; ++g)
                for (int64_t i = 0; i < 4; ++i)
                  sum += x[static_cast<size_t>(l * x_line + p * x_pixel + offset[static_cast<size_t>(g)] + i)] *
                         w[((o / kBlock * kGroups + g) * kBlock + o % kBlock) * 4 + i];
              wrong += code != inference::code_of(stage_as_node(s, o), sum, 0) ? 1 : 0;
            }
        INFO(enum_name(rule) << ", " << channels << " channels, " << pixels << " pixels");
        CHECK(wrong == 0);
        CHECK(touched == 0);
      }
}
