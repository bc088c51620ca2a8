// The output stage of networks of integers on an emulated device: the codes of quant/fixed_point.h on the host.
#include <array>
#include <vector>

#include "cuda/both.h"
#include "kernels/map/map.h"
#include "nn/map/integer_codes.h"

namespace bitgrad::test {
namespace {

constexpr int64_t kEach = 24;  // multipliers of an exponent

// Multipliers of every exponent, the first three of each with ties at whole multiples of 2^-e / 2.
struct Multipliers {
  std::vector<int32_t> m, e;
  std::vector<float> factor;
  Multipliers() {
    const std::vector<int32_t> drawn = some_words<int32_t>(62 * kEach, 5);
    for (int32_t exponent = -31; exponent <= 30; ++exponent)
      for (int64_t i = 0; i < kEach; ++i) {
        const int32_t ties[] = {1 << 30, 3 << 29, 5 << 28};
        m.push_back(i < 3 ? ties[i] : (drawn[m.size()] & 0x3FFFFFFF) | 0x40000000);
        e.push_back(exponent);
        factor.push_back(static_cast<float>(value_of({m.back(), exponent})));
      }
  }
  int64_t count() const { return static_cast<int64_t>(m.size()); }
};

// Sums of every size, and for each multiplier those whose product is a half, or next to one.
std::vector<int32_t> sums_of(const Multipliers& multipliers, int64_t rows) {
  std::vector<int32_t> sums = some_words<int32_t>(rows * multipliers.count(), 9);
  for (size_t i = 0; i < sums.size(); ++i) {
    const int32_t e = multipliers.e[i % multipliers.e.size()], drawn = sums[i];
    if (i % 3 == 0) {
      const int64_t tie = int64_t{2 * (drawn >> 24) + 1} * (int64_t{1} << (e < 0 ? -e : 0)) + (drawn & 3) - 1;
      sums[i] = static_cast<int32_t>(tie);  // modulo 2^32: any sum will do
    } else {
      sums[i] = drawn >> ((drawn & 31) % 24);
    }
  }
  return sums;
}

std::vector<int8_t> on_device(const kernels::codes::Stage& stage, const std::vector<int32_t>& sums, int64_t cols) {
  const Placed<int32_t> x(sums);
  const Placed<int8_t> y(std::vector<int8_t>(sums.size()));
  const maps::RequantizedSums map{{cols, 4}, stage, {x.data(), cols}, {y.data(), cols}};
  run_map(map, static_cast<int64_t>(sums.size()) / cols * map.runs.runs());
  return y.values();
}

}  // namespace

TEST_CASE("Sums become the codes of the host on a device, by every rule, multiplier and tie") {
  const Multipliers multipliers;
  const int64_t cols = multipliers.count();
  const std::vector<int32_t> sums = sums_of(multipliers, 400);
  const DeviceGuard guard(Device::cuda());
  const Placed<int32_t> m(multipliers.m), e(multipliers.e);
  const Placed<float> factor(multipliers.factor);
  for (const OutputRounding rule :
       {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat, OutputRounding::kRuy}) {
    kernels::codes::Stage stage;
    stage.rule = static_cast<kernels::codes::Rule>(rule);
    stage.m = m.data();
    stage.e = e.data();
    stage.factor = factor.data();
    // Codes as they are, and the low bytes of the numbers before they are bounded.
    for (const bool bounded : {true, false}) {
      stage.zero = bounded ? -7 : 0;
      stage.lo = bounded ? -100 : INT32_MIN;
      stage.hi = bounded ? 127 : INT32_MAX;
      const std::vector<int8_t> codes = on_device(stage, sums, cols);
      int64_t wrong = 0, inside = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        const size_t j = i % multipliers.m.size();
        const int32_t r =
            inference::scaled_sum(rule, sums[i], {multipliers.m[j], multipliers.e[j]}, multipliers.factor[j]);
        const int32_t code = inference::bounded_code(int64_t{r} + stage.zero, stage.lo, stage.hi);
        wrong += static_cast<int8_t>(code) != codes[i] ? 1 : 0;
        inside += code > -100 && code < 127 && r != 0 ? 1 : 0;
      }
      CHECK(wrong == 0);
      CHECK(inside > 50000);
    }
  }
}

}  // namespace bitgrad::test
