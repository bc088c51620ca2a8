// Powers with whole exponents.
#pragma once

#include <cstdint>

namespace bitgrad::detail {

// Exponentiation by squaring: the same bits with every C library, and fast even after a million steps.
inline double power(double base, int64_t n) {
  double p = 1;
  for (; n > 0; n /= 2, base *= base)
    if (n % 2 == 1) p *= base;
  return p;
}

}  // namespace bitgrad::detail
