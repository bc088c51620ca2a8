// cos and sin of 2 pi u. u is reduced by the nearest quarter turn k (exact); the remainder, |t| <= pi/4, goes through
// Taylor polynomials of degree 16 and 17, whose relative remainder is below 2^-53.
#include "bitgrad/base/math.h"

namespace bitgrad::math {
namespace {

double cos_poly(double t) {
  const double z = t * t;
  double p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  p = p * z - 0.5;
  return p * z + 1.0;
}

double sin_poly(double t) {
  const double z = t * t;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return (p * z) * t + t;
}

// cos(2 pi u - quarter * pi / 2); sine is cosine with quarter = 1.
double cos_shifted(double u, int quarter) {
  const double k = (4.0 * u + 0x1.8p52) - 0x1.8p52;
  const double t = (u - 0.25 * k) * 6.283185307179586;
  switch ((static_cast<int>(k) - quarter) & 3) {
    case 0:
      return cos_poly(t);
    case 1:
      return -sin_poly(t);
    case 2:
      return -cos_poly(t);
    default:
      return sin_poly(t);
  }
}

}  // namespace

double cos_turns(double u) { return cos_shifted(u, 0); }
double sin_turns(double u) { return cos_shifted(u, 1); }

}  // namespace bitgrad::math
