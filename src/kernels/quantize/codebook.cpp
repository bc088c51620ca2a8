#include "kernels/quantize/codebook.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bitgrad::kernels::quantize_loops {

SortedLevels sort_levels(const DTypeInfo& info) {
  SortedLevels out;
  for (size_t raw = 0; raw < info.levels.size(); ++raw) out.codes.push_back(static_cast<uint8_t>(raw));
  const auto level = [&](uint8_t raw) { return info.levels[raw]; };
  std::stable_sort(out.codes.begin(), out.codes.end(), [&](uint8_t a, uint8_t b) { return level(a) < level(b); });
  const auto last =
      std::unique(out.codes.begin(), out.codes.end(), [&](uint8_t a, uint8_t b) { return level(a) == level(b); });
  out.codes.erase(last, out.codes.end());
  for (size_t i = 0; i + 1 < out.codes.size(); ++i) {
    const double middle =
        0.5 * (static_cast<double>(level(out.codes[i])) + static_cast<double>(level(out.codes[i + 1])));
    float bound = static_cast<float>(middle);
    if (static_cast<double>(bound) > middle) bound = std::nextafter(bound, -std::numeric_limits<float>::infinity());
    out.bounds.push_back(bound);
  }
  size_t index = 0;
  while (index < out.bounds.size() && 0.0f > out.bounds[index]) ++index;
  if (!out.codes.empty()) out.zero = out.codes[index];
  return out;
}

}  // namespace bitgrad::kernels::quantize_loops
