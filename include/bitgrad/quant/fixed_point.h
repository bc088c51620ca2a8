// The output stage of integer networks: int32 sums become codes by a multiplier and a shift. The only definition of
// these rules: kernels, graphs and exporters call or write down what is here, and devices compute it. docs/numerics.md
// section 4, "The integer scheme".
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "bitgrad/base/device.h"
#include "bitgrad/base/key.h"

namespace bitgrad {

// m * 2^(e - 31); m is in [2^30, 2^31), or 0.
struct FixedPoint {
  int32_t m = 0;
  int32_t e = 0;
  friend bool operator==(const FixedPoint&, const FixedPoint&) = default;
};

// The multiplier nearest to d >= 0: (f, e) = frexp(d), m = f * 2^31 rounded half away from zero; 2^31 becomes 2^30 with
// e + 1; {0, 0} if e < -31. (QuantizeMultiplier of TensorFlow Lite Micro.) Throws Error for a d that is negative, not
// finite, or rounds to 2^30 and more.
FixedPoint fixed_point(double d);
// What it stands for, exactly.
double value_of(FixedPoint multiplier);

// How a sum times a multiplier is rounded. Programs that run the same file differ in it, so it is part of the model.
enum class OutputRounding : uint8_t {
  kDouble,  // gemmlowp: two roundings, the second with ties away from zero (TensorFlow Lite Micro, CMSIS-NN)
  kSingle,  // one rounding, ties up (both of them, built with single rounding)
  kFloat,   // product in fp32, ties to even (XNNPACK; the requantize of int32 in bitgrad)
  kRuy,     // two roundings, the second with ties up (LiteRT without XNNPACK). For tests: configurations refuse it
};
template <>
struct EnumNames<OutputRounding> {
  static constexpr std::string_view all[] = {"double", "single", "float", "ruy"};
};

namespace detail {

BITGRAD_HD constexpr int32_t clamped_int32(int64_t x) {
  return static_cast<int32_t>(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}

}  // namespace detail

// acc * m * 2^(e - 31), rounded by the rule, clamped to int32. With left = max(e, 0), right = max(-e, 0):
//   double  h = (clamp(acc * 2^left) * m + 2^30) >> 31;  r = (h + 2^(right-1) - (h < 0)) >> right; h if right = 0
//   ruy     h as above;                                  r = (h + 2^(right-1)) >> right; h if right = 0
//   single  r = (acc * m + 2^(30-e)) >> (31-e)
// clamp is to int32; >> rounds down. (With m >= 0, (p + 2^30) >> 31 is gemmlowp's SaturatingRoundingDoublingHighMul,
// which has no case to saturate.) kFloat: m * 2^(e-31) is rounded to fp32 and passed to requantize_float; networks have
// a factor of their own instead (inference::Requantize).
BITGRAD_HD inline int32_t requantize_float(int32_t acc, float factor);
BITGRAD_HD inline int32_t requantize(int32_t acc, FixedPoint multiplier, OutputRounding rule) {
  const int64_t m = multiplier.m;
  const int e = multiplier.e;
  if (rule == OutputRounding::kFloat)
    return requantize_float(acc, static_cast<float>(ldexp(static_cast<double>(m), e - 31)));
  if (rule == OutputRounding::kSingle) return detail::clamped_int32((acc * m + (int64_t{1} << (30 - e))) >> (31 - e));
  const int64_t shifted = e > 0 ? detail::clamped_int32(static_cast<int64_t>(acc) * (int64_t{1} << e)) : acc;
  const int64_t h = (shifted * m + (int64_t{1} << 30)) >> 31;
  if (e >= 0) return static_cast<int32_t>(h);
  const int64_t tie = rule == OutputRounding::kDouble && h < 0 ? 1 : 0;
  return static_cast<int32_t>((h + (int64_t{1} << (-e - 1)) - tie) >> -e);
}

// rint(fp32(acc) * factor), the product rounded to fp32, ties to even; clamped to int32 (the largest fp32 below 2^31
// where it is too large).
BITGRAD_HD inline int32_t requantize_float(int32_t acc, float factor) {
  constexpr float kLeast = -2147483648.0f, kLargest = 2147483520.0f;
  const float r = rintf(static_cast<float>(acc) * factor);
  return static_cast<int32_t>(r < kLeast ? kLeast : r > kLargest ? kLargest : r);
}

}  // namespace bitgrad
