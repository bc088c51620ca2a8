// Histograms of observers and the thresholds that percentile and mse take from them, against the same number by number.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "quant/observer_support.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

using test::draws_with_outliers;
using test::observer_named;
using test::scale_of;
using test::spec_of;
using test::state_of;
using test::tensor_of;

// The histogram's definition, number by number: the range is the smallest power of two above all numbers.
struct PlainHistogram {
  int exponent = -100;
  std::vector<int64_t> positive = std::vector<int64_t>(2048), negative = std::vector<int64_t>(2048);
  explicit PlainHistogram(const std::vector<float>& x) {
    float a = 0;
    for (const float v : x) a = std::max(a, std::fabs(v));
    while (static_cast<double>(a) >= std::ldexp(1.0, exponent)) ++exponent;
    for (const float v : x) {
      const double w = std::ldexp(1.0, exponent - 11), size = std::fabs(static_cast<double>(v));
      const size_t bin = static_cast<size_t>(std::floor(size / w));
      ++(v < 0 ? negative : positive)[bin];
    }
  }
};

TEST_CASE("counts equal those of all values at once, for any batches, order and threads") {
  std::vector<float> x = draws_with_outliers(70000, 5);
  for (size_t i = 0; i < 1000; ++i) x[i] *= 0x1p-30f;
  x[2000] = 0x1p10f;
  x[2001] = -std::nextafter(0x1p10f, 0.0f);
  x[2002] = -0.0f;
  const PlainHistogram want(x);
  CHECK(want.exponent == 11);
  const int threads = num_threads();
  for (const int n : {1, 2, 5})
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{70000}, {1, 999, 1000, 68000}, {68000, 1000, 999, 1}}) {
      set_num_threads(n);
      const auto abs = observer_named("percentile", spec_of("symmetric")),
                 both = observer_named("mse", spec_of("symmetric"));
      size_t at = 0;
      for (const int64_t cut : cuts) {
        const auto begin = x.begin() + static_cast<int64_t>(at);
        const Tensor batch = tensor_of({cut, 1}, std::vector<float>(begin, begin + cut));
        abs->observe(batch);
        both->observe(batch);
        at += static_cast<size_t>(cut);
      }
      const std::vector<double> counts = state_of(*abs, "counts").elements(),
                                apart = state_of(*both, "counts").elements();
      REQUIRE(counts.size() == 2048);
      REQUIRE(apart.size() == 4096);
      CHECK(state_of(*abs, "exponent").elements() == std::vector<double>{11});
      for (size_t i = 0; i < 2048; ++i) {
        REQUIRE(counts[i] == static_cast<double>(want.positive[i] + want.negative[i]));
        REQUIRE(apart[i] == static_cast<double>(want.positive[i]));
        REQUIRE(apart[2048 + i] == static_cast<double>(want.negative[i]));
      }
    }
  set_num_threads(threads);
}

TEST_CASE("histograms hold the largest, the smallest and no numbers at all") {
  struct Case {
    float x;
    int exponent;
  };
  for (const Case c : {Case{0.0f, -100},
                       {0x1p-149f, -100},
                       {0x1p-100f, -99},
                       {std::nextafter(0x1p-100f, 0.0f), -100},
                       {1.0f, 1},
                       {std::nextafter(1.0f, 0.0f), 0},
                       {std::numeric_limits<float>::max(), 128}}) {
    const QuantSpec spec = spec_of("symmetric");
    const auto observer = observer_named("percentile", spec);
    observer->observe(tensor_of({1}, {-c.x}));
    INFO(c.x);
    CHECK(state_of(*observer, "exponent").elements() == std::vector<double>{static_cast<double>(c.exponent)});
    CHECK(scale_of(observer->params(spec)) == std::max(c.x / 127.5f, 0x1p-126f));
    const double inverse = std::ldexp(1.0, 11 - c.exponent);
    CHECK(state_of(*observer, "counts").elements()[static_cast<size_t>(static_cast<double>(c.x) * inverse)] == 1);
    // From the far end of the range: everything merges into bin 0 beside the new number.
    observer->observe(tensor_of({1}, {std::numeric_limits<float>::max()}));
    const std::vector<double> counts = state_of(*observer, "counts").elements();
    CHECK(counts[0] + counts[2047] == 2);
  }
}

TEST_CASE("percentile clips at the upper edge of the first bin that holds enough numbers") {
  // Numbers 0.5, 1.5 .. 1022.5 and 1600: range 2^11, bins of width 1; 1024 numbers.
  std::vector<float> x;
  for (int i = 0; i < 1023; ++i) x.push_back((i % 2 ? -0.5f : 0.5f) + (i % 2 ? -1.0f : 1.0f) * static_cast<float>(i));
  x.push_back(1600);
  const auto threshold = [&](float percentile) {
    const QuantSpec spec = spec_of("absmax");
    const auto observer = make_observer({.name = "percentile", .percentile = percentile}, spec, 1);
    observer->observe(tensor_of({1024}, x));
    return scale_of(observer->params(spec));
  };
  CHECK(threshold(100) == 1600.0f / 127.0f);  // the bin's edge is 1601, the largest number 1600
  CHECK(threshold(50) == 512.0f / 127.0f);    // exactly 512 of 1024
  CHECK(threshold(std::nextafter(50.0f, 100.0f)) == 513.0f / 127.0f);
  CHECK(threshold(1e-6f) == 1.0f / 127.0f);
  CHECK(threshold(99.9f) == 1023.0f / 127.0f);
}

TEST_CASE("percentile and mse clip both sides alike but never widen the observed range") {
  std::vector<float> x(1000, 0.25f);
  for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i) / 2000.0f;  // 0.25 .. 0.7495
  x[0] = 100;
  const QuantSpec spec = spec_of("minmax_offset", dtypes::uint8);
  for (const char* name : {"percentile", "mse"}) {
    const auto observer = observer_named(name, spec);
    observer->observe(tensor_of({1000}, x));
    const QuantParams p = observer->params(spec);
    INFO(name);
    CHECK(p.offset->as<float>()[0] == x[1]);  // the least number lies within any threshold
    CHECK(scale_of(p) * 255.0f + p.offset->as<float>()[0] <= 100);
  }
  // A negative outlier cuts the low end.
  x[0] = -100;
  const auto observer = observer_named("percentile", spec);
  observer->observe(tensor_of({1000}, x));
  CHECK(observer->params(spec).offset->as<float>()[0] > -1);
}

// The error of threshold t, number by number of the histogram, by the scheme's formulas alone.
double plain_error(const QuantSpec& spec, const PlainHistogram& h, float low, float high) {
  const test::BlockParams p = test::fit_block(spec, {low, high});
  const double w = std::ldexp(1.0, h.exponent - 11);
  double e = 0;
  for (const bool negative : {false, true})
    for (size_t i = 0; i < 2048; ++i) {
      const int64_t n = (negative ? h.negative : h.positive)[i];
      if (n == 0) continue;
      const float c = static_cast<float>((negative ? -1.0 : 1.0) * (static_cast<double>(i) + 0.5) * w);
      const float q = static_cast<float>(test::code_of(spec, p, c).number);
      const float v = spec.scheme == "minmax_offset" ? p.s * q + p.m : p.s * (q - static_cast<float>(p.z));
      const double d = static_cast<double>(c) - static_cast<double>(v);
      e += static_cast<double>(n) * (d * d);
    }
  return e;
}

TEST_CASE("mse selects the best of 81 thresholds, a tie goes to the larger") {
  std::vector<std::vector<float>> inputs = {draws_with_outliers(5000, 9), {1, -0.5f, 0.25f}, {-4}, {0, 0}, {0x1p100f}};
  inputs.push_back(draws_with_outliers(3000, 10));
  for (float& v : inputs.back()) v = std::max(v, 0.0f);
  bool clipped = false;
  for (const auto& x : inputs)
    for (const char* scheme : {"affine", "symmetric", "absmax", "minmax_offset"})
      for (const DType dtype : {dtypes::int2, dtypes::int4, dtypes::int8, dtypes::uint4})
        for (const bool pow2 : {false, true}) {
          QuantSpec spec = spec_of(scheme, dtype);
          spec.pow2 = pow2;
          const PlainHistogram h(x);
          const float low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
          const double a = std::max(std::fabs(low), std::fabs(high));
          double lower = INFINITY;
          test::BlockParams want;
          int best = 0;
          for (int k = 20; k <= 100; ++k) {
            const float t = static_cast<float>(a * k / 100);
            const float l = std::min(std::max(low, -t), t), r = std::max(std::min(high, t), -t);
            const double e = plain_error(spec, h, l, r);
            if (e > lower) continue;
            lower = e;
            best = k;
            want = test::fit_block(spec, {l, r});
          }
          clipped = clipped || best < 90;
          const auto observer = observer_named("mse", spec);
          observer->observe(tensor_of({static_cast<int64_t>(x.size())}, x));
          const QuantParams p = observer->params(spec);
          INFO(scheme << ' ' << dtype << " pow2 " << pow2 << " first " << x[0] << " best " << best);
          CHECK(scale_of(p) == want.s);
          if (p.zero) CHECK(p.zero->as<int32_t>()[0] == want.z);
          if (p.offset) CHECK(p.offset->as<float>()[0] == want.m);
        }
  CHECK(clipped);
}

TEST_CASE("mse looks at nearest codes of the range in use, also for stochastic specs and half ranges") {
  const Tensor x = tensor_of({4000}, draws_with_outliers(4000, 11));
  QuantSpec spec = spec_of("symmetric", dtypes::int4), stochastic = spec;
  stochastic.rounding = Rounding::kStochastic;
  const auto observer = observer_named("mse", spec), other = observer_named("mse", stochastic);
  observer->observe(x);
  other->observe(x);
  CHECK(scale_of(other->params(stochastic)) == scale_of(observer->params(spec)));
  QuantSpec half = spec_of("symmetric", dtypes::int8);
  half.reduce_range = true;
  const auto range = observer_named("min_max", half);
  range->observe(x);
  const std::vector<double> low = state_of(*range, "low").elements(), high = state_of(*range, "high").elements();
  CHECK(scale_of(range->params(half)) == static_cast<float>(std::max(-low[0], high[0])) / 63.5f);
}

}  // namespace
}  // namespace bitgrad
