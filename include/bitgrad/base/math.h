// Elementary functions with the same bits on every compiler, C library and ISA.
//
// All are evaluated in double, by polynomials in IEEE arithmetic without contraction (compile with -ffp-contract=off),
// and rounded to fp32 once. They are within 0.51 ulp of the exact value (guaranteed: 2 ulp; base/math_test.cpp samples
// the whole range). They are inline so that loops can be vectorized; exp has no branch.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "bitgrad/base/device.h"

namespace bitgrad::math {

namespace detail {
// e^x in double for |x| <= 700; NaN for NaN. x = n ln2 + r with |r| <= ln2 / 2, and a Taylor polynomial of degree 10 in
// r. The remainder r^11/11! and the rounding of n ln2 stay below 1e-12 relative for |x| <= 110.
BITGRAD_HD inline double exp_double(double x) {
  const double shifted =
      x * 1.4426950408889634 + 0x1.8p52;  // rint in the default rounding mode; n is in the low bits of the word
  const double n = shifted - 0x1.8p52;
  const double r = (x - n * 0x1.62e42fefa39efp-1) - n * 0x1.abc9e3b39803fp-56;
  double p = 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023u) << 52);
}
}  // namespace detail

// e^x. Overflow gives Inf, underflow passes through the subnormals to 0, NaN stays NaN.
BITGRAD_HD inline float exp(float x) {
  const double clamped = x > 89.0f ? 89.0 : (x < -104.0f ? -104.0 : static_cast<double>(x));  // NaN passes through
  return static_cast<float>(detail::exp_double(clamped));
}

// Natural logarithm. log(+-0) = -Inf, log(negative) = NaN. x = 2^e m, log m = 2 atanh((m - 1) / (m + 1)).
BITGRAD_HD inline float log(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (x == std::numeric_limits<float>::infinity()) return x;
  const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(x));
  int64_t e = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);  // |s| <= 0.1716
  const double z = s * s;
  double p = 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  return static_cast<float>(2.0 * s * p + static_cast<double>(e) * 0x1.62e42fefa39efp-1);
}

// Hyperbolic tangent: Taylor polynomial of degree 9 near 0, else 1 - 2 / (e^2x + 1). Preserves -0 and NaN.
BITGRAD_HD inline float tanh(float x) {
  const float a = x < 0.0f ? -x : x;
  if (a < 0.0625f) {
    const double z = static_cast<double>(x) * static_cast<double>(x);
    double p = 62.0 / 2835.0;
    p = p * z - 17.0 / 315.0;
    p = p * z + 2.0 / 15.0;
    p = p * z - 1.0 / 3.0;
    p = p * z + 1.0;
    return a == 0.0f ? x : static_cast<float>(static_cast<double>(x) * p);
  }
  if (a > 10.0f) return x > 0.0f ? 1.0f : -1.0f;
  if (!(a == a)) return x;
  const double t = 1.0 - 2.0 / (detail::exp_double(2.0 * static_cast<double>(a)) + 1.0);
  return static_cast<float>(x < 0.0f ? -t : t);
}

// ---- In double, for functions that are rounded once at the end. Branch-free, so that loops over them vectorize ----

// 1 / (1 + e^-x), within 2e-12 relative where the result is above 1e-300.
BITGRAD_HD inline double sigmoid_double(double x) {
  const double clamped = x > 700.0 ? 700.0 : (x < -700.0 ? -700.0 : x);  // NaN passes through
  return 1.0 / (1.0 + detail::exp_double(-clamped));
}

// Normal cumulative distribution function 1/2 erfc(-x / sqrt 2), within 5e-12 relative for x >= -8.9, 1e-9 for
// x >= -15. The middle piece of Cody's erfc ("Rational Chebyshev approximations for the error function", Math. Comp.
// 23, 1969) is valid on all of [0, 11].
BITGRAD_HD inline double normal_cdf_double(double x) {
  const double side = x < 0.0 ? -x : x, a = side > 36.0 ? 36.0 * 0x1.6a09e667f3bcdp-1 : side * 0x1.6a09e667f3bcdp-1;
  double p = 2.15311535474403846e-8;
  p = p * a + 5.64188496988670089e-1;
  p = p * a + 8.88314979438837594e0;
  p = p * a + 6.61191906371416295e1;
  p = p * a + 2.98635138197400131e2;
  p = p * a + 8.81952221241769090e2;
  p = p * a + 1.71204761263407058e3;
  p = p * a + 2.05107837782607147e3;
  p = p * a + 1.23033935479799725e3;
  double q = a + 1.57449261107098347e1;
  q = q * a + 1.17693950891312499e2;
  q = q * a + 5.37181101862009858e2;
  q = q * a + 1.62138957456669019e3;
  q = q * a + 3.29079923573345963e3;
  q = q * a + 4.36261909014324716e3;
  q = q * a + 3.43936767414372164e3;
  q = q * a + 1.23033935480374942e3;
  const double tail = 0.5 * detail::exp_double(-a * a) * (p / q);
  return x < 0.0 ? tail : 1.0 - tail;
}

// SiLU x / (1 + e^-x) and its derivative (Elfwing et al. 2018, arXiv 1702.03118, equations 5 and 6).
BITGRAD_HD inline double silu_double(double x) { return x * sigmoid_double(x); }
BITGRAD_HD inline double silu_slope_double(double x) {
  const double s = sigmoid_double(x);
  return s * (1.0 + x * (1.0 - s));
}

// GELU x Phi(x) and its derivative Phi(x) + x phi(x) (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2).
BITGRAD_HD inline double gelu_double(double x) { return x * normal_cdf_double(x); }
BITGRAD_HD inline double gelu_slope_double(double x) {
  const double half = x * x * 0.5;
  return normal_cdf_double(x) + x * (detail::exp_double(half > 700.0 ? -700.0 : -half) * 0.3989422804014327);
}

// The tanh approximation of GELU, 1/2 x (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + e^-2u).
BITGRAD_HD inline double gelu_tanh_double(double x) {
  return x * sigmoid_double(1.5957691216057308 * (x + 0.044715 * x * x * x));
}
BITGRAD_HD inline double gelu_tanh_slope_double(double x) {
  const double s = sigmoid_double(1.5957691216057308 * (x + 0.044715 * x * x * x));
  return s + x * (s * (1.0 - s)) * (1.5957691216057308 * (1.0 + 0.134145 * x * x));
}

// log(1 + e^-a) for a >= 0: 2 atanh(e / (2 + e)) with e = e^-a, within 3e-12 relative where it is above 1e-300.
BITGRAD_HD inline double softplus_tail_double(double a) {
  const double e = detail::exp_double(a > 700.0 ? -700.0 : -a), s = e / (2.0 + e), z = s * s;
  double p = 1.0 / 25.0;
  for (int k = 23; k >= 1; k -= 2) p = p * z + 1.0 / k;
  return 2.0 * s * p;
}

// Linear interpolation from `old` to x by weight a, as in a moving average; b = 1 - a. As torch.lerp: both ends are
// exact, and the rounding error is small relative to the nearer end. Each operation is rounded once.
BITGRAD_HD inline float lerp(float old, float x, float a, float b) {
  return a < 0.5f ? old + a * (x - old) : x + b * (old - x);
}

// cos(2 pi u) and sin(2 pi u) for u in [0, 1), within 1e-15. Box-Muller needs the argument in turns.
double cos_turns(double u);
double sin_turns(double u);

}  // namespace bitgrad::math
