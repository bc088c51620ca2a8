// One number and one draw: at which draw a code moves up, to the last of 65536.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/quantize/rounding.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;
namespace {

// floor((floor(2^16 u) + draw) / 2^16), exactly.
int64_t code_of(float u, uint16_t draw) {
  const auto scaled = static_cast<int64_t>(std::floor(static_cast<double>(u) * 65536.0));
  return (scaled + draw) >> 16;
}

// The draws around the one at which the code of u moves up, and the ends.
std::vector<uint16_t> draws_of(float u) {
  const auto fraction = static_cast<int64_t>(std::floor(static_cast<double>(u) * 65536.0)) & 0xFFFF;
  std::vector<uint16_t> draws{0, 1, 65534, 65535};
  for (const int64_t d : {65535 - fraction, 65536 - fraction, 65537 - fraction})
    if (d >= 0 && d < 65536) draws.push_back(static_cast<uint16_t>(d));
  return draws;
}

TEST_CASE("a draw moves a code up exactly where the number's 65536 parts and the draw reach the next code") {
  std::mt19937 random(1);
  std::vector<float> numbers{0.0f, -0.0f, 0x1p-16f, -0x1p-16f, 0x1p-17f, -0x1p-17f,
                             1.0f, -1.0f, 6.5f,     -6.5f,     0x1p-40f, -0x1p-40f};
  for (int i = 0; i < 2000; ++i) {
    const auto parts = static_cast<float>(static_cast<int64_t>(random() % (12 << 16)) - (6 << 16));
    numbers.push_back(parts / 65536.0f);                           // on a part
    numbers.push_back(std::nextafter(parts / 65536.0f, -100.0f));  // and just below one
  }
  for (const float u : numbers) {
    for (const uint16_t draw : draws_of(u)) {
      INFO("number " << u << ", draw " << draw);
      CHECK(quantize_loops::stochastic_code(u, 0.0f, -9.0f, 8.0f, draw) == code_of(u, draw));
      CHECK(quantize_loops::stochastic_code(u, 1.0f, -9.0f, 8.0f, draw) == code_of(u + 1.0f, draw));
      CHECK(quantize_loops::int8_code(u, true, draw) == code_of(u, draw));
    }
  }
  // Beyond the range: the clamp's numbers; NaN is 0.
  CHECK(quantize_loops::stochastic_code(100.0f, 0.0f, -9.0f, 8.0f, 65535) == 8);
  CHECK(quantize_loops::stochastic_code(-100.0f, 0.0f, -9.0f, 8.0f, 0) == -9);
  CHECK(quantize_loops::stochastic_code(std::numeric_limits<float>::quiet_NaN(), 0.0f, -9.0f, 8.0f, 65535) == 0);
}

}  // namespace
}  // namespace bitgrad
