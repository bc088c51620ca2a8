#include "bitgrad/dtype/bf16.h"

#include <cmath>
#include <limits>

#include "support/catch.h"

using namespace bitgrad;

namespace {
float from_bits(uint32_t u) { return std::bit_cast<float>(u); }
}  // namespace

TEST_CASE("every bf16 but NaN goes to float and back unchanged, and a NaN stays one with its sign") {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float x = bf16_to_float(static_cast<uint16_t>(b));
    const uint16_t back = bf16_from_float(x);
    if (std::isnan(x)) {
      REQUIRE(std::isnan(bf16_to_float(back)));
      REQUIRE((back & 0x8000u) == (b & 0x8000u));
    } else {
      REQUIRE(back == b);
    }
  }
}

TEST_CASE("bf16 rounds to nearest and ties to even, also into the next exponent and into Inf") {
  CHECK(bf16_from_float(from_bits(0x3F808000u)) == 0x3F80);  // tie, even below
  CHECK(bf16_from_float(from_bits(0x3F818000u)) == 0x3F82);  // tie, even above
  CHECK(bf16_from_float(from_bits(0x3F808001u)) == 0x3F81);
  CHECK(bf16_from_float(from_bits(0x3F807FFFu)) == 0x3F80);
  CHECK(bf16_from_float(from_bits(0xBF818000u)) == 0xBF82);
  CHECK(bf16_from_float(from_bits(0x3FFF8000u)) == 0x4000);  // 1.99.. -> 2
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(bf16_from_float(from_bits(0x7F7F7FFFu)) == 0x7F7F);
  CHECK(bf16_from_float(from_bits(0x00008000u)) == 0x0000);  // subnormal tie
  CHECK(bf16_from_float(from_bits(0x00008001u)) == 0x0001);
  CHECK(bf16_from_float(-0.0f) == 0x8000);
  CHECK(bf16_from_float(std::numeric_limits<float>::infinity()) == 0x7F80);
}

TEST_CASE("a NaN with a payload in the low bits only does not become Inf") {
  CHECK(bf16_from_float(from_bits(0x7F800001u)) == 0x7FC0);
  CHECK(bf16_from_float(from_bits(0xFF80FFFFu)) == 0xFFC0);
  CHECK(bf16_from_float(from_bits(0x7FFFFFFFu)) == 0x7FFF);
}

TEST_CASE("stochastic rounding truncates the sum of the bits and the draw and leaves Inf and NaN alone") {
  CHECK(bf16_from_float_stochastic(from_bits(0x3F800000u), 0xFFFF) == 0x3F80);  // exact values never move
  CHECK(bf16_from_float_stochastic(from_bits(0x3F800001u), 0xFFFF) == 0x3F81);
  CHECK(bf16_from_float_stochastic(from_bits(0x3F800001u), 0xFFFE) == 0x3F80);
  CHECK(bf16_from_float_stochastic(from_bits(0xBF80C000u), 0x4000) == 0xBF81);
  CHECK(bf16_from_float_stochastic(from_bits(0xBF80C000u), 0x3FFF) == 0xBF80);
  CHECK(bf16_from_float_stochastic(from_bits(0x7F800000u), 0xFFFF) == 0x7F80);
  CHECK(bf16_from_float_stochastic(from_bits(0xFF800001u), 0xFFFF) == 0xFFC0);
  int up = 0;
  for (uint32_t r = 0; r < 65536; ++r) {
    up += bf16_from_float_stochastic(from_bits(0x3F801234u), static_cast<uint16_t>(r)) == 0x3F81 ? 1 : 0;
  }
  CHECK(up == 0x1234);  // the chance to go up is exactly the fraction
}
