// Ranges of numbers, as configurations and layer keys write them: "[1, 64]", "(0, 1]".
#pragma once

#include <string_view>

namespace bitgrad {

struct NumberRange {
  double lo = 0, hi = 0;
  bool open_lo = false, open_hi = false;
  bool contains(double x) const { return (open_lo ? x > lo : x >= lo) && (open_hi ? x < hi : x <= hi); }
};
// Throws Error if `text` is not a range.
NumberRange parse_number_range(std::string_view text);

}  // namespace bitgrad
