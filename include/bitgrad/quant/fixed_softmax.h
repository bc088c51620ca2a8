// Softmax of int8 codes in integers alone: that of TensorFlow Lite Micro and of the reference kernels of LiteRT.
// docs/numerics.md section 4, "The integer scheme".
#pragma once

#include <cstdint>

namespace bitgrad {

// exp(scale * (x - largest)) in Q5.26: the difference times m * 2^(shift - 31). Differences below `least` give code
// -128.
struct FixedSoftmax {
  int32_t m = 0, shift = 0, least = 0;
};
// scale: of the inputs, per code; 2^-26 < scale < 16. Throws Error for another.
FixedSoftmax fixed_softmax(double scale);

// Codes of probabilities mean (code + 128) / 256.
inline constexpr float kSoftmaxScale = 1.0f / 256;
inline constexpr int32_t kSoftmaxZero = -128;
// Exponentials are summed in Q12.19; their sum is below 2^9 then.
inline constexpr int64_t kMostSoftmaxCodes = 511;

// y[i] = code of softmax(x)[i], i < n; y may be x. 1 <= n <= kMostSoftmaxCodes. The exponential and the reciprocal are
// those of gemmlowp's fixed-point numbers (github.com/google/gemmlowp, fixedpoint.h): a polynomial on [-1/4, 0) times
// constants exp(-2^k), and three steps of Newton's method.
void softmax_codes(const FixedSoftmax& form, const int8_t* x, int64_t n, int8_t* y);

}  // namespace bitgrad
