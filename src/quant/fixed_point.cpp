#include "bitgrad/quant/fixed_point.h"

#include "bitgrad/base/error.h"

namespace bitgrad {

FixedPoint fixed_point(double d) {
  constexpr int kMostBits = 30, kLeastBits = -31;
  require(std::isfinite(d) && d >= 0, "fixed_point", "got ", d, ", expected a finite number of at least 0");
  int e = 0;
  int64_t m = static_cast<int64_t>(std::round(std::frexp(d, &e) * 0x1p31));
  if (m == int64_t{1} << 31) {
    m /= 2;
    ++e;
  }
  if (e < kLeastBits) return {};
  require(e <= kMostBits, "fixed_point", "got ", d, ", expected a multiplier below 2^30");
  return {static_cast<int32_t>(m), d == 0 ? 0 : e};
}

double value_of(FixedPoint multiplier) { return std::ldexp(static_cast<double>(multiplier.m), multiplier.e - 31); }

}  // namespace bitgrad
