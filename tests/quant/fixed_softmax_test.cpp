// Softmax of codes in integers alone against that of doubles. That its codes are those of TensorFlow Lite Micro and of
// LiteRT's reference kernels is tested where these are (tests/train/export_tflite_test.cpp).
#include "bitgrad/quant/fixed_softmax.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = std::vector<int8_t>;

Codes softmax_of(const Codes& x, double scale) {
  Codes y(x.size());
  softmax_codes(fixed_softmax(scale), x.data(), std::ssize(x), y.data());
  return y;
}

}  // namespace

TEST_CASE("softmax of codes is that of doubles, rounded, for every scale and number of codes") {
  std::mt19937 random(3);
  double largest = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    const double scale = std::exp(-7.0 + 0.001 * static_cast<double>(random() % 9000));
    Codes x(1 + random() % static_cast<size_t>(turn % 7 == 0 ? kMostSoftmaxCodes : 20));
    const int range = 1 + static_cast<int>(random() % 256);
    for (int8_t& each : x) each = static_cast<int8_t>(static_cast<int>(random() % 256) % range - 128);
    const Codes y = softmax_of(x, scale);
    const double most = scale * *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const int8_t each : x) sum += std::exp(scale * each - most);
    for (size_t i = 0; i < x.size(); ++i) {
      const double p = std::min(255.0, 256 * std::exp(scale * x[i] - most) / sum);
      largest = std::max(largest, std::abs(p - (y[i] + 128)));
    }
    Codes in_place = x;
    softmax_codes(fixed_softmax(scale), in_place.data(), std::ssize(x), in_place.data());
    CHECK(in_place == y);
  }
  CHECK(largest < 0.501);  // half a code, and 2^-19 of each of the sums
}

TEST_CASE("softmax of codes at its ends") {
  CHECK(softmax_of({-128}, 0.1) == Codes{127});
  CHECK(softmax_of({5, 5}, 0.1) == Codes{0, 0});  // 1/2
  CHECK(softmax_of({5, 5, 5, 5}, 15.9) == Codes{-64, -64, -64, -64});
  CHECK(softmax_of({-128, 127}, 0x1p-20) == Codes{0, 0});  // no difference that counts
  CHECK(softmax_of({-128, 127, 126}, 15.9) == Codes{-128, 127, -128});
  CHECK(softmax_of(Codes(511, 3), 1) == Codes(511, -127));  // 256/511 of a code
}

TEST_CASE("softmax of codes refuses scales and lengths that its numbers do not hold") {
  CHECK(contains(error_of([] { fixed_softmax(0x1p-26); }), "expected more than 2^-26, below 16"));
  CHECK(contains(error_of([] { fixed_softmax(16); }), "a scale of 16 per code"));
  CHECK(contains(error_of([] { fixed_softmax(std::nan("")); }), "a scale of nan per code"));
  CHECK(contains(error_of([] { softmax_of(Codes(512), 1); }), "got 512 codes, expected 1 to 511"));
}
