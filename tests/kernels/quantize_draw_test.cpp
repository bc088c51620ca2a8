// One number and one draw: at which draw a code moves up, to the last of 65536.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/quantize/rounding.h"
#include "support/catch.h"
#include "support/draw_codes.h"

namespace bitgrad {

using namespace kernels;
namespace {

// The draws around the one at which the code of a number with this many 65536th parts moves up, and the ends.
std::vector<uint16_t> draws_of(float u, double parts) {
  const auto fraction = static_cast<int64_t>(std::nearbyint(u * parts) * (65536 / parts)) & 0xFFFF;
  std::vector<uint16_t> draws{0, 1, 65534, 65535};
  for (const int64_t d : {65535 - fraction, 65536 - fraction, 65537 - fraction})
    if (d >= 0 && d < 65536) draws.push_back(static_cast<uint16_t>(d));
  return draws;
}

TEST_CASE("a draw moves a code up exactly where the number's nearest part and the draw reach the next code") {
  std::mt19937 random(1);
  const struct {
    int lo, hi;
    double parts;
  } ranges[] = {{-7, 7, 65536}, {-8, 7, 65536}, {0, 31, 65536}, {-32, 31, 32768}, {0, 127, 16384}, {-128, 127, 8192}};
  for (const auto& range : ranges) {
    const quantize_loops::CodeParts cut = quantize_loops::code_parts(range.lo, range.hi);
    CHECK(std::exp2(16 - cut.shift) == range.parts);
    std::vector<float> numbers{0.0f, -0.0f, 0x1p-16f, -0x1p-16f, 0x1p-17f, -0x1p-17f,
                               1.0f, -1.0f, 6.5f,     -6.5f,     0x1p-40f};
    for (int i = 0; i < 500; ++i) {
      const auto half_parts = static_cast<float>(static_cast<int64_t>(random() % (12 << 17)) - (6 << 17));
      numbers.push_back(half_parts / 131072.0f);                           // on a part, or a tie of two
      numbers.push_back(std::nextafter(half_parts / 131072.0f, -100.0f));  // and just below
    }
    for (const float u : numbers)
      for (const uint16_t draw : draws_of(u, range.parts)) {
        INFO("codes " << range.lo << " .. " << range.hi << ", number " << u << ", draw " << draw);
        const auto low = static_cast<float>(range.lo - 1), high = static_cast<float>(range.hi + 1);
        for (const float zero : {0.0f, 1.0f})
          CHECK(quantize_loops::stochastic_code(u, zero, low, high, cut, draw) ==
                test::code_by_draw(u + zero, range.lo, range.hi, draw));
        if (range.parts == 8192)
          CHECK(quantize_loops::int8_code(u, true, draw) == test::code_by_draw(u, -127, 127, draw));
      }
  }
  // Beyond the range: the clamp's numbers; NaN is 0.
  const quantize_loops::CodeParts parts = quantize_loops::code_parts(-8, 7);
  CHECK(quantize_loops::stochastic_code(100.0f, 0.0f, -9.0f, 8.0f, parts, 65535) == 8);
  CHECK(quantize_loops::stochastic_code(-100.0f, 0.0f, -9.0f, 8.0f, parts, 0) == -9);
  CHECK(quantize_loops::stochastic_code(std::numeric_limits<float>::quiet_NaN(), 0.0f, -9.0f, 8.0f, parts, 65535) == 0);
}

TEST_CASE("the mean over all draws is the number, neither above nor below") {
  std::mt19937 random(2);
  const quantize_loops::CodeParts cut = quantize_loops::code_parts(-7, 7);
  double bias = 0;
  for (int i = 0; i < 300; ++i) {
    const float u = std::uniform_real_distribution<float>(-6, 6)(random);
    double sum = 0;
    for (int draw = 0; draw < 65536; ++draw)
      sum += quantize_loops::stochastic_code(u, 0.0f, -8.0f, 8.0f, cut, static_cast<uint16_t>(draw));
    CHECK(std::fabs(sum / 65536 - static_cast<double>(u)) <= 0x1p-17);
    bias += sum / 65536 - static_cast<double>(u);
  }
  CHECK(std::fabs(bias / 300) < 0x1p-17 / 5);  // cutting off: 2^-17
}

}  // namespace
}  // namespace bitgrad
