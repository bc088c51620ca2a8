// Powers of two beside a number, against frexp in double; fp16 numbers beside one.
#include "kernels/map/numbers.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;
namespace {

constexpr float kLeast = std::numeric_limits<float>::denorm_min(), kNormal = std::numeric_limits<float>::min();

double next_power(double s) {
  int e = 0;
  return std::frexp(s, &e) == 0.5 ? s : std::ldexp(1.0, e);
}
double nearest_power(double x) {
  int e = 0;
  return std::frexp(x, &e) > std::sqrt(2.0) / 2 ? std::ldexp(1.0, e) : std::ldexp(0.5, e);
}

// A number, its neighbours, and their likes at other exponents.
std::vector<float> around(float x, int min, int max) {
  std::vector<float> all;
  for (const float y : {std::nextafter(x, 0.0f), x, std::nextafter(x, 4.0f)})
    for (int e = min; e <= max; ++e) all.push_back(std::ldexp(y, e));
  return all;
}

// [cpu]: functions that both sides compile
TEST_CASE("the next power of two of a scale is exact, of subnormal ones too", "[cpu]") {
  std::vector<float> numbers{kLeast, 2 * kLeast, 3 * kLeast, 5 * kLeast, kNormal / 2, std::nextafter(kNormal, 0.0f),
                             kNormal};
  for (const float x : around(1.0f, -149, 126))
    if (x > 0) numbers.push_back(x);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) numbers.push_back(maps::q::of_bits(1 + static_cast<uint32_t>(random() % 0x7E800000u)));
  for (const float s : numbers) {
    INFO(s);
    CHECK(static_cast<double>(maps::q::ceil_pow2(s)) == next_power(s));
  }
  CHECK(std::isinf(maps::q::ceil_pow2(std::nextafter(0x1p127f, INFINITY))));
  CHECK(std::isnan(maps::q::ceil_pow2(std::nanf(""))));
  CHECK(std::isnan(maps::q::ceil_pow2(-std::nanf(""))));
}

TEST_CASE("rounding to fp16 is that of the dtype, for every fp16 number and between all neighbours", "[cpu]") {
  for (uint32_t h = 0; h < 0x7C00; ++h) {
    const float x = fp16_to_float(static_cast<uint16_t>(h));
    const float next = h == 0x7BFF ? 65536.0f : fp16_to_float(static_cast<uint16_t>(h + 1));
    const float middle = (x + next) / 2;
    for (const float y : {x, std::nextafter(x, next), std::nextafter(middle, x), middle, std::nextafter(middle, next)})
      for (const float z : {y, -y})
        if (maps::q::bits_of(maps::q::round_fp16(z)) != maps::q::bits_of(fp16_to_float(fp16_from_float(z)))) {
          INFO(z);
          CHECK(maps::q::round_fp16(z) == fp16_to_float(fp16_from_float(z)));
        }
  }
  for (const float x : {1e6f, 65520.0f, INFINITY, -INFINITY})
    CHECK(maps::q::round_fp16(x) == std::copysign(INFINITY, x));
  CHECK(maps::q::round_fp16(std::nextafter(65520.0f, 0.0f)) == 65504.0f);
  CHECK(std::isnan(maps::q::round_fp16(NAN)));
  const ScaleRounding both{true, true};
  CHECK(maps::q::rounded_scale(both, 0x1p-30f) == 0x1p-24f);
  CHECK(maps::q::rounded_scale(both, 3.0f) == 4.0f);
  CHECK(std::isinf(maps::q::rounded_scale(both, 40000.0f)));
  CHECK(maps::q::rounded_offset({false, true}, -0.1f) == fp16_to_float(fp16_from_float(-0.1f)));
  CHECK(maps::q::rounded_offset({true, false}, -0.1f) == -0.1f);
}

TEST_CASE("the nearest power of two by its exponent turns at the square root of two", "[cpu]") {
  std::vector<float> numbers = around(1.0f, -125, 126);
  for (const float x : around(std::sqrt(2.0f), -126, 126)) numbers.push_back(x);
  for (const float x : around(1.5f, -126, 126)) numbers.push_back(x);
  for (const float x : numbers) {
    INFO(x);
    CHECK(static_cast<double>(maps::q::round_pow2(x)) == nearest_power(x));
  }
}

}  // namespace
}  // namespace bitgrad
