#include "interop/decoder_files.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bitgrad::interop {
namespace {

double frequency(const RopeOptions& rope, size_t pair) {
  return std::pow(rope.base, -2.0 * static_cast<double>(pair) / static_cast<double>(rope.dim));
}

// Converters compute in fp32: next to the pairs of a factor of 32, one in 10^5.
constexpr double kApart = 5e-5;

bool has_factors(const RopeOptions& rope, std::span<const float> factors) {
  const std::vector<float> expected = rope_factors(rope);
  for (size_t i = 0; i < factors.size(); ++i)
    if (!(std::abs(static_cast<double>(factors[i]) - expected[i]) <= kApart * expected[i])) return false;
  return true;
}

// low = 1, and high and original of the line through the first and the last pair between them.
bool fit_line(std::span<const float> factors, RopeOptions& rope) {
  double first[2] = {}, last[2] = {};  // frequency / (2 pi), and the share that is not scaled
  size_t between = 0;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double factor = factors[i];
    if (factor < 1 + kApart || factor > rope.factor * (1 - kApart)) continue;
    double* const at = between++ == 0 ? first : last;
    at[0] = frequency(rope, i) / (2 * std::numbers::pi);
    at[1] = (1 / factor - 1 / rope.factor) / (1 - 1 / rope.factor);
  }
  if (between < 2) return false;
  const double slope = (first[1] - last[1]) / (first[0] - last[0]), start = first[1] - slope * first[0];
  if (!(slope > 0 && start < 0)) return false;
  rope.low = 1;
  rope.high = std::round((1 - 1 / start) * 1024) / 1024;
  const double original = std::round(slope * (rope.high - rope.low));
  if (!(rope.high > rope.low && original >= 1 && original < 1e9)) return false;
  rope.original = static_cast<int64_t>(original);
  return has_factors(rope, factors);
}

}  // namespace

std::vector<float> rope_factors(const RopeOptions& rope) {
  std::vector<float> out;
  for (size_t pair = 0; pair < static_cast<size_t>(rope.dim / 2); ++pair) {
    const double turns = static_cast<double>(rope.original) * frequency(rope, pair) / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - rope.low) / (rope.high - rope.low), 0.0, 1.0);
    out.push_back(static_cast<float>(rope.factor == 1 ? 1 : 1 / ((1 - kept) / rope.factor + kept)));
  }
  return out;
}

bool read_rope_factors(std::span<const float> factors, RopeOptions& rope) {
  if (factors.empty() || std::ssize(factors) != rope.dim / 2) return false;
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  if (!(*least >= 1 - kApart && *most <= 1e6)) return false;
  if (*most <= 1 + kApart) return true;
  scale_linear(rope, *most);
  if (has_factors(rope, factors)) return true;
  constexpr int64_t kMostOriginal = int64_t{1} << 22;
  for (rope.original = 1; rope.original <= kMostOriginal; rope.original *= 2)  // all that Meta published: 8192
    if (has_factors(rope, factors)) return true;
  return fit_line(factors, rope);
}

}  // namespace bitgrad::interop
