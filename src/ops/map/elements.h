// Element-wise losses. docs/numerics.md section 10.
#pragma once

#include "bitgrad/base/math.h"
#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// max(x, 0) - x t + log(1 + e^-|x|) and its derivative sigmoid(x) - t, in double.
BITGRAD_HD inline double sigmoid_cross_entropy_double(double x, double t) {
  const double a = x < 0.0 ? -x : x;
  return ((x > 0.0 ? x : 0.0) - x * t) + math::softplus_tail_double(a == a ? a : x);
}
BITGRAD_HD inline double sigmoid_cross_entropy_slope_double(double x, double t) { return math::sigmoid_double(x) - t; }

// Both, rounded once to fp32; sets bit 1 in flags if a target is not in [0, 1].
struct SigmoidCrossEntropy {
  const void *x, *t;
  bool bf16_x, bf16_t;
  float *term, *slope;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t i) const {
    const double logit = load_float(x, bf16_x, i), target = load_float(t, bf16_t, i);
    if (!(target >= 0.0 && target <= 1.0)) or_flag(flags, 1u);
    term[i] = static_cast<float>(sigmoid_cross_entropy_double(logit, target));
    slope[i] = static_cast<float>(sigmoid_cross_entropy_slope_double(logit, target));
  }
};

// With the term of t times p: p t log(1 + e^-x) + (1 - t) log(1 + e^x), and its derivative.
BITGRAD_HD inline double weighted_sigmoid_double(double x, double t, double p) {
  const double a = x < 0.0 ? -x : x, tail = math::softplus_tail_double(a == a ? a : x);
  return p * t * ((x < 0.0 ? -x : 0.0) + tail) + (1.0 - t) * ((x > 0.0 ? x : 0.0) + tail);
}
BITGRAD_HD inline double weighted_sigmoid_slope_double(double x, double t, double p) {
  const double s = math::sigmoid_double(x);
  return p * t * (s - 1.0) + (1.0 - t) * s;
}

struct WeightedSigmoidCrossEntropy {
  const void *x, *t;
  bool bf16_x, bf16_t;
  const float* factors;  // [outputs]
  int64_t outputs;
  float *term, *slope;
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t i) const {
    const double logit = load_float(x, bf16_x, i), target = load_float(t, bf16_t, i), p = factors[i % outputs];
    if (!(target >= 0.0 && target <= 1.0)) or_flag(flags, 1u);
    term[i] = static_cast<float>(weighted_sigmoid_double(logit, target, p));
    slope[i] = static_cast<float>(weighted_sigmoid_slope_double(logit, target, p));
  }
};

}  // namespace bitgrad::maps
