#include <cmath>
#include <cstdint>

#include "bitgrad/dtype/bf16.h"
#include "support/catch.h"

namespace bitgrad {
namespace {

bool is_nan16(uint32_t h) { return (h & 0x7FFFu) > 0x7C00u; }

TEST_CASE("Every fp16 number goes to fp32 and back unchanged, and every NaN stays one") {
  int wrong = 0;
  for (uint32_t h = 0; h < 0x10000u; ++h) {
    const float x = fp16_to_float(static_cast<uint16_t>(h));
    const uint16_t back = fp16_from_float(x);
    if (is_nan16(h))
      wrong += !std::isnan(x) || !is_nan16(back) || (back & 0x8000u) != (h & 0x8000u);
    else
      wrong += back != h;
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp16 to fp32 gives sign * 2^e * m") {
  int wrong = 0;
  for (uint32_t h = 0; h < 0x7C00u; ++h) {
    const int exponent = static_cast<int>(h >> 10), mantissa = static_cast<int>(h & 0x3FFu);
    const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    wrong += fp16_to_float(static_cast<uint16_t>(h)) != value;
    wrong += fp16_to_float(static_cast<uint16_t>(h | 0x8000u)) != -value;
  }
  CHECK(wrong == 0);
  CHECK(std::isinf(fp16_to_float(0x7C00)));
  CHECK(fp16_to_float(0xFC00) < 0.0f);
}

TEST_CASE("fp32 to fp16 rounds to nearest even between all neighbours") {
  int wrong = 0;
  for (uint32_t h = 0; h < 0x7C00u; ++h) {
    const float low = fp16_to_float(static_cast<uint16_t>(h));
    const float high = h == 0x7BFFu ? 65536.0f : fp16_to_float(static_cast<uint16_t>(h + 1));
    const float middle = 0.5f * (low + high);  // exact in fp32
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    wrong += fp16_from_float(middle) != even;
    wrong += fp16_from_float(std::nextafterf(middle, 0.0f)) != h;
    wrong += fp16_from_float(std::nextafterf(middle, 1e30f)) != h + 1;
    wrong += fp16_from_float(-middle) != (even | 0x8000u);
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp32 beyond fp16 becomes Inf, and tiny numbers become a zero of their sign") {
  CHECK(fp16_from_float(65519.99f) == 0x7BFF);
  CHECK(fp16_from_float(65520.0f) == 0x7C00);
  CHECK(fp16_from_float(1e38f) == 0x7C00);
  CHECK(fp16_from_float(-INFINITY) == 0xFC00);
  CHECK(fp16_from_float(0x1p-25f) == 0);
  CHECK(fp16_from_float(-1e-45f) == 0x8000);
  CHECK(fp16_from_float(std::nextafterf(0x1p-25f, 1.0f)) == 1);
  CHECK(is_nan16(fp16_from_float(NAN)));
  CHECK(is_nan16(fp16_from_float(std::bit_cast<float>(0x7F800001u))));
}

}  // namespace
}  // namespace bitgrad
