#include "bitgrad/quant/fixed_softmax.h"

#include <algorithm>
#include <bit>

#include "bitgrad/base/error.h"
#include "bitgrad/quant/fixed_point.h"

namespace bitgrad {
namespace {

constexpr int32_t kOne = INT32_MAX;  // of Q0.31

// a * b * 2^-31, rounded, ties up.
int32_t high(int64_t a, int64_t b) { return static_cast<int32_t>((a * b + (int64_t{1} << 30)) >> 31); }
// x * 2^-bits, rounded, ties away from zero; bits >= 1.
int32_t down(int64_t x, int bits) {
  return static_cast<int32_t>((x + (int64_t{1} << (bits - 1)) - (x < 0 ? 1 : 0)) >> bits);
}
int32_t up(int64_t x, int bits) { return detail::clamped_int32(x * (int64_t{1} << bits)); }

// exp(a) in Q0.31 for a <= 0 in Q5.26.
int32_t exponential(int32_t a) {
  constexpr int32_t kQuarter = 1 << 24, kExpOfEighth = 1895147668, kThird = 715827883;
  constexpr int32_t kFactors[] = {1672461947, 1302514674, 790015084, 290630308,
                                  39332535,   720401,     242};  // exp(-2^(i-2))
  if (a == 0) return kOne;
  const int32_t r = (a & (kQuarter - 1)) - kQuarter;  // a less multiples of 1/4, in [-1/4, 0)
  const int32_t x = r * 32 + (1 << 28);               // r + 1/8 in Q0.31
  const int32_t x2 = high(x, x), x3 = high(x2, x), x4 = high(x2, x2);
  const int32_t rest = down(int64_t{high(int64_t{down(x4, 2)} + x3, kThird)} + x2, 1);
  int32_t y = kExpOfEighth + high(kExpOfEighth, int64_t{x} + rest);
  for (int i = 0; i < 7; ++i)
    if (((r - a) & (kQuarter << i)) != 0) y = high(y, kFactors[i]);
  return y;
}

// 2^31 / (1 + a) for a in [0, 1) of Q0.31, as Q0.31.
int32_t reciprocal(int32_t a) {
  const int64_t half = (a + (int64_t{1} << 31)) >> 1;
  int64_t x = 1515870810 + high(half, -1010580540);  // 48/17 - 32/17 * half in Q2.29
  for (int step = 0; step < 3; ++step) x += up(high(x, (int64_t{1} << 29) - high(half, x)), 2);
  return up(x, 1);
}

int32_t exponential_of(const FixedSoftmax& form, int32_t difference) {
  return exponential(high(difference * (int64_t{1} << form.shift), form.m));
}

}  // namespace

FixedSoftmax fixed_softmax(double scale) {
  require(scale > 0x1p-26 && scale < 16, "softmax", "a scale of ", scale,
          " per code: expected more than 2^-26, below 16");
  const FixedPoint m = fixed_point(scale * 0x1p26);
  return {m.m, m.e, -static_cast<int32_t>((int64_t{31} << 26) >> m.e)};
}

void softmax_codes(const FixedSoftmax& form, const int8_t* x, int64_t n, int8_t* y) {
  require(n >= 1 && n <= kMostSoftmaxCodes, "softmax", "got ", n, " codes, expected 1 to ", kMostSoftmaxCodes);
  int32_t largest = -128;
  for (int64_t i = 0; i < n; ++i) largest = std::max<int32_t>(largest, x[i]);
  int32_t sum = 0;  // Q12.19
  for (int64_t i = 0; i < n; ++i)
    if (x[i] - largest >= form.least) sum += down(exponential_of(form, x[i] - largest), 12);
  const int zeros = std::countl_zero(static_cast<uint32_t>(sum));
  const int32_t inverse = reciprocal(static_cast<int32_t>((static_cast<uint32_t>(sum) << zeros) - 0x80000000U));
  for (int64_t i = 0; i < n; ++i) {
    const int32_t difference = x[i] - largest;
    const int32_t p = difference < form.least ? 0 : down(high(inverse, exponential_of(form, difference)), 35 - zeros);
    y[i] = static_cast<int8_t>(std::min(p, 255) - 128);
  }
}

}  // namespace bitgrad
