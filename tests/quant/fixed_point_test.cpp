// The output stage of integer networks against definitions written another way: gemmlowp's with its nudge and
// truncating division, 128-bit integers, and long double.
#include "bitgrad/quant/fixed_point.h"

#include <cmath>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
using R = OutputRounding;
constexpr R kFixedRules[] = {R::kDouble, R::kRuy, R::kSingle};

// SaturatingRoundingDoublingHighMul of gemmlowp's fixedpoint.h.
int32_t doubling_high(int32_t a, int32_t b) {
  if (a == b && a == kLeast) return static_cast<int32_t>(kMost);
  const int64_t ab = int64_t{a} * b;
  const int64_t nudge = ab >= 0 ? (int64_t{1} << 30) : 1 - (int64_t{1} << 30);
  return static_cast<int32_t>((ab + nudge) / (int64_t{1} << 31));
}
// RoundingDivideByPOT of the same.
int32_t divided(int32_t x, int exponent) {
  const int32_t mask = static_cast<int32_t>((int64_t{1} << exponent) - 1);
  const int32_t remainder = x & mask, threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + (remainder > threshold ? 1 : 0);
}
int32_t saturated(__int128 x) {
  return static_cast<int32_t>(x < kLeast ? __int128{kLeast} : x > kMost ? __int128{kMost} : x);
}
// floor of x / 2^bits + 1/2.
__int128 rounded_up(__int128 x, int bits) {
  const __int128 twice = 2 * x + (__int128{1} << bits), unit = __int128{1} << (bits + 1);
  return twice / unit - (twice % unit < 0 ? 1 : 0);
}

int32_t expected(int32_t acc, FixedPoint f, R rule) {
  if (rule == R::kSingle) return saturated(rounded_up(__int128{acc} * f.m, 31 - f.e));
  const int32_t shifted = saturated(__int128{acc} << std::max(f.e, 0));
  const int32_t h = doubling_high(shifted, f.m);
  if (f.e >= 0) return h;
  return rule == R::kDouble ? divided(h, -f.e) : saturated(rounded_up(h, -f.e));
}

// Wrong results among `count` draws of this seed.
int64_t wrong_draws(int64_t count, uint64_t seed) {
  constexpr int64_t kGrain = 1 << 16;
  std::vector<int64_t> wrong(static_cast<size_t>((count + kGrain - 1) / kGrain));
  parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
    uint64_t state = seed + static_cast<uint64_t>(begin) * 0x9E3779B97F4A7C15ull;
    const auto next = [&] {  // splitmix64
      uint64_t z = (state += 0x9E3779B97F4A7C15ull);
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      return z ^ (z >> 31);
    };
    int64_t bad = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t a = next(), b = next();
      const auto acc = static_cast<int32_t>(static_cast<int64_t>(static_cast<int32_t>(a)) >> (a >> 59));
      const FixedPoint f{static_cast<int32_t>((b & 0x3FFFFFFF) | 0x40000000),
                         static_cast<int32_t>((b >> 32) % 62) - 31};
      for (const R rule : kFixedRules) bad += requantize(acc, f, rule) != expected(acc, f, rule) ? 1 : 0;
    }
    wrong[static_cast<size_t>(begin / kGrain)] = bad;
  });
  int64_t sum = 0;
  for (const int64_t w : wrong) sum += w;
  return sum;
}

}  // namespace

TEST_CASE("requantize equals gemmlowp and 128-bit integers for 10 million random numbers") {
  CHECK(wrong_draws(10'000'000, 1) == 0);
}
TEST_CASE("requantize equals gemmlowp and 128-bit integers for 100 million random numbers", "[slow]") {
  CHECK(wrong_draws(100'000'000, 2) == 0);
}

// With m = 2^30 a multiplier is a power of two, so that all sums near multiples of its inverse are ties and neighbours.
TEST_CASE("requantize rounds every tie by its rule") {
  for (const R rule : kFixedRules)
    for (int e = -31; e <= 1; ++e)
      for (int64_t k = -300; k <= 300; ++k)
        for (const int64_t near : {-1, 0, 1}) {
          const int64_t half = int64_t{1} << std::max(0, -e);  // of 2^(1-e), which one code is
          const int64_t acc = k * half + near;
          if (acc < kLeast || acc > kMost) continue;
          const FixedPoint f{1 << 30, e};
          INFO(enum_name(rule) << ' ' << acc << " e " << e);
          REQUIRE(requantize(static_cast<int32_t>(acc), f, rule) == expected(static_cast<int32_t>(acc), f, rule));
        }
}

TEST_CASE("The rules differ at ties as their clients do") {
  const FixedPoint quarter{1 << 30, -1};  // 2^30 * 2^-32
  CHECK(requantize(2, quarter, R::kDouble) == 1);
  CHECK(requantize(-2, quarter, R::kDouble) == -1);  // away from zero
  CHECK(requantize(-2, quarter, R::kRuy) == 0);      // up
  CHECK(requantize(-2, quarter, R::kSingle) == 0);
  CHECK(requantize_float(-2, 0.25f) == 0);  // to even
  CHECK(requantize_float(6, 0.25f) == 2);
  CHECK(requantize(1, quarter, R::kDouble) == 1);  // rounds 1/2 up to 1, and then 1/2 again
  CHECK(requantize(1, quarter, R::kSingle) == 0);
}

TEST_CASE("Multipliers above 1 shift left and saturate") {
  const FixedPoint eight = fixed_point(8.0);
  CHECK(eight == FixedPoint{1 << 30, 4});
  for (const R rule : kFixedRules) {
    CHECK(requantize(5, eight, rule) == 40);
    CHECK(requantize(-5, eight, rule) == -40);
    const FixedPoint large = fixed_point(std::ldexp(1.75, 28));
    for (const int64_t acc :
         {kLeast, kLeast + 1, int64_t{-16}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{16}, kMost})
      CHECK(requantize(static_cast<int32_t>(acc), large, rule) == expected(static_cast<int32_t>(acc), large, rule));
  }
  CHECK(requantize(static_cast<int32_t>(kMost), eight, R::kSingle) == kMost);
  CHECK(requantize(static_cast<int32_t>(kLeast), eight, R::kSingle) == kLeast);
  CHECK(requantize_float(static_cast<int32_t>(kMost), 8.0f) == 2147483520);
  CHECK(requantize_float(static_cast<int32_t>(kLeast), 8.0f) == kLeast);
}

TEST_CASE("rule float rounds the fp32 product to even") {
  uint64_t state = 5;
  for (int i = 0; i < 300'000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto acc = static_cast<int32_t>(state >> 32) >> (state >> 60);
    const float m =
        std::ldexp(1.0f + static_cast<float>(state & 0xFFFF) / 65536.0f, -static_cast<int>((state >> 20) % 24));
    const double exact = static_cast<double>(static_cast<float>(acc)) * static_cast<double>(m);  // 48 bits
    const double wanted = std::nearbyint(static_cast<double>(static_cast<float>(exact)));
    REQUIRE(static_cast<double>(requantize_float(acc, m)) == std::min(wanted, 2147483520.0));
  }
}

TEST_CASE("fixed_point is the nearest multiplier") {
  CHECK(fixed_point(0.0) == FixedPoint{0, 0});
  CHECK(fixed_point(1.0) == FixedPoint{1 << 30, 1});
  CHECK(fixed_point(0.5) == FixedPoint{1 << 30, 0});
  CHECK(fixed_point(std::nextafter(1.0, 0.0)) == FixedPoint{1 << 30, 1});  // rounds to 2^31, which is halved
  CHECK(fixed_point(std::ldexp(1.0, -32)) == FixedPoint{1 << 30, -31});
  CHECK(fixed_point(std::ldexp(0.99, -32)) == FixedPoint{0, 0});
  CHECK(fixed_point(std::nextafter(std::ldexp(1.0, -32), 0.0)) == FixedPoint{1 << 30, -31});
  CHECK(fixed_point(0.5 + std::ldexp(0.5, -31)).m == (1 << 30) + 1);  // a tie, away from zero
  uint64_t state = 9;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const double d = std::ldexp(1.0 + static_cast<double>(state >> 12) * 0x1p-52, static_cast<int>(state % 58) - 30);
    const FixedPoint f = fixed_point(d);
    int e = 0;
    const long double m = roundl(frexpl(d, &e) * 0x1p31L);
    REQUIRE(static_cast<long double>(value_of(f)) == ldexpl(m, e - 31));
    REQUIRE(f.m >= 1 << 30);
  }
}

TEST_CASE("fixed_point throws for numbers that are not multipliers") {
  for (const double d : {-0.25, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK(contains(error_of([&] { fixed_point(d); }), "expected a finite number of at least 0"));
  CHECK(contains(error_of([] { fixed_point(std::ldexp(1.0, 30)); }), "expected a multiplier below 2^30"));
  CHECK(fixed_point(std::ldexp(1.5, 29)).e == 30);
}
