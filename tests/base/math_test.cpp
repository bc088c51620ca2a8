#include "bitgrad/base/math.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/catch.h"

namespace bitgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the correctly rounded result.
double ulp_error(float got, long double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0.0 : 1e30;
  const float size = std::abs(rounded);
  const float next = std::nextafterf(size, kInf);
  const long double unit = std::isinf(next) ? static_cast<long double>(size) - std::nextafterf(size, 0.0f)
                                            : static_cast<long double>(next) - size;
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / unit);
}

// Largest error over every `stride`-th float of both signs in [low, high] by size.
template <typename Ours, typename Exact>
double worst(Ours ours, Exact exact, float low, float high, uint32_t stride, bool negative) {
  double largest = 0;
  const uint32_t end = std::bit_cast<uint32_t>(high);
  for (uint32_t bits = std::bit_cast<uint32_t>(low); bits <= end; bits += stride) {
    const float x = std::bit_cast<float>(bits);
    largest = std::max(largest, ulp_error(ours(x), exact(static_cast<long double>(x))));
    if (negative) largest = std::max(largest, ulp_error(ours(-x), exact(-static_cast<long double>(x))));
  }
  return largest;
}

constexpr float kTiny = 1e-45f;
constexpr double kBound = 0.51;  // promised are 2

TEST_CASE("exp is within 0.51 ulp of the exact value over its whole range") {
  const auto exact = [](long double x) { return std::exp(x); };
  CHECK(worst(math::exp, exact, kTiny, 110.0f, 20011, true) <= kBound);
  CHECK(worst(math::exp, exact, 80.0f, 105.0f, 37, true) <= kBound);
}

TEST_CASE("exp goes through the subnormals to 0 and over to Inf at the right places") {
  CHECK(math::exp(0.0f) == 1.0f);
  CHECK(math::exp(-0.0f) == 1.0f);
  CHECK(math::exp(88.72283f) < kInf);
  CHECK(math::exp(88.72284f) == kInf);
  CHECK(math::exp(kInf) == kInf);
  CHECK(math::exp(-kInf) == 0.0f);
  CHECK(math::exp(-103.9f) == 1e-45f);
  CHECK(math::exp(-103.98f) == 0.0f);
  CHECK(math::exp(-std::numeric_limits<float>::max()) == 0.0f);
  CHECK(std::isnan(math::exp(kNan)));
  CHECK(std::isnan(math::exp(-kNan)));
}

TEST_CASE("log is within 0.51 ulp of the exact value over its whole range") {
  const auto exact = [](long double x) { return std::log(x); };
  CHECK(worst(math::log, exact, kTiny, std::numeric_limits<float>::max(), 20011, false) <= kBound);
  CHECK(worst(math::log, exact, 0.99f, 1.01f, 3, false) <= kBound);
}

TEST_CASE("log of the special values is as in C") {
  CHECK(math::log(1.0f) == 0.0f);
  CHECK(math::log(0.0f) == -kInf);
  CHECK(math::log(-0.0f) == -kInf);
  CHECK(math::log(kInf) == kInf);
  CHECK(std::isnan(math::log(-1.0f)));
  CHECK(std::isnan(math::log(-kInf)));
  CHECK(std::isnan(math::log(kNan)));
}

TEST_CASE("tanh is within 0.51 ulp of the exact value over its whole range") {
  const auto exact = [](long double x) { return std::tanh(x); };
  CHECK(worst(math::tanh, exact, kTiny, std::numeric_limits<float>::max(), 40009, true) <= kBound);
  CHECK(worst(math::tanh, exact, 0.03f, 11.0f, 701, true) <= kBound);
  CHECK(std::signbit(math::tanh(-0.0f)));
  CHECK(math::tanh(kInf) == 1.0f);
  CHECK(math::tanh(-kInf) == -1.0f);
  CHECK(std::isnan(math::tanh(kNan)));
}

TEST_CASE("values computed in double and rounded once are within the bound of the exact value, also far out") {
  // The bounds that the header promises, relative.
  struct Function {
    double (*ours)(double);
    long double (*exact)(long double);
    double lo, hi, bound;
  };
  const auto normal = [](long double x) { return 0.5L * std::erfc(-x / std::sqrt(2.0L)); };
  const std::vector<Function> all = {
      {math::sigmoid_double, [](long double x) { return 1 / (1 + std::exp(-x)); }, -690, 690, 2e-12},
      {math::normal_cdf_double, normal, -8.9, 40, 5e-12},
      {math::normal_cdf_double, normal, -15, -8.9, 1e-9},
      {math::silu_double, [](long double x) { return x / (1 + std::exp(-x)); }, -690, 690, 2e-12},
      {math::gelu_double, [](long double x) { return x * 0.5L * std::erfc(-x / std::sqrt(2.0L)); }, -8.9, 40, 5e-12},
      {math::softplus_tail_double, [](long double x) { return std::log1p(std::exp(-x)); }, 0, 690, 3e-12}};
  for (const Function& f : all) {
    double largest = 0;
    for (int i = 0; i <= 20000; ++i) {
      const double x = f.lo + (f.hi - f.lo) * i / 20000;
      const long double e = f.exact(x);
      if (e != 0) largest = std::max(largest, static_cast<double>(std::abs((f.ours(x) - e) / e)));
    }
    CAPTURE(f.lo, f.hi);
    CHECK(largest <= f.bound);
  }
  for (const auto f : {math::silu_double, math::gelu_double, math::gelu_tanh_double}) {
    CHECK(f(3e38) == 3e38);
    CHECK(std::abs(f(-3e38)) < 1e-100);
    CHECK(std::isnan(f(static_cast<double>(kNan))));
    CHECK(!std::isfinite(f(static_cast<double>(-kInf))));
  }
  for (const auto f : {math::silu_slope_double, math::gelu_slope_double, math::gelu_tanh_slope_double}) {
    CHECK(f(3e38) == 1);
    CHECK(std::abs(f(-3e38)) < 1e-100);
    CHECK(std::abs(f(0) - 0.5) <= 3e-12);
  }
  CHECK(math::softplus_tail_double(1e30) < 1e-300);
}

TEST_CASE("cos and sin of turns are within 1e-15 of the exact values, and exact at the quarters") {
  long double largest = 0;
  for (int i = 0; i < (1 << 24); i += 97) {
    const double u = i * 0x1p-24;
    const long double angle = 2 * 3.14159265358979323846264338327950288L * u;
    largest = std::max(largest, std::abs(math::cos_turns(u) - std::cos(angle)));
    largest = std::max(largest, std::abs(math::sin_turns(u) - std::sin(angle)));
  }
  CHECK(largest <= 1e-15L);
  CHECK(math::cos_turns(0.0) == 1.0);
  CHECK(math::cos_turns(0.25) == 0.0);
  CHECK(math::cos_turns(0.5) == -1.0);
  CHECK(math::cos_turns(0.75) == 0.0);
  CHECK(math::sin_turns(0.0) == 0.0);
  CHECK(math::sin_turns(0.25) == 1.0);
  CHECK(math::sin_turns(0.5) == 0.0);
  CHECK(math::sin_turns(0.75) == -1.0);
}

}  // namespace
}  // namespace bitgrad
