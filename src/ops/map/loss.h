// Losses over logits [n, classes], row by row, and their gradients. docs/numerics.md section 6.
#pragma once

#include <cmath>

#include "bitgrad/base/math.h"
#include "kernels/map/pointwise.h"
#include "ops/map/list.h"

namespace bitgrad::maps {

// Returns whether a label is a valid class; otherwise sets bit 1 in flags.
BITGRAD_HD inline bool is_class(int32_t label, int64_t classes, uint32_t* flags) {
  if (label >= 0 && label < classes) return true;
  or_flag(flags, 1u);
  return false;
}

// margin = t * max(0, 1 - t y), square = max(0, 1 - t y)^2 for the logits y[0 .. classes) of one row.
template <typename T>
BITGRAD_HD inline void hinge_row(const T* y, int64_t classes, int32_t label, T* margin, T* square) {
  for (int64_t c = 0; c < classes; ++c) {
    const T t = c == label ? T(1) : T(-1);
    const T m = T(1) - t * y[c];
    const T h = m <= T(0) ? T(0) : m;  // keeps NaN
    margin[c] = t * h;
    square[c] = h * h;
  }
}

// fp64 rows are references for gradient checks and use the C library.
BITGRAD_HD inline float exp_of(float x) { return math::exp(x); }
BITGRAD_HD inline float log_of(float x) { return math::log(x); }
inline double exp_of(double x) { return std::exp(x); }
inline double log_of(double x) { return std::log(x); }

// difference = softmax(y) - onehot(label); returns log sum exp(y - max) - (y_label - max).
template <typename T>
BITGRAD_HD inline T softmax_row(const T* y, int64_t classes, int32_t label, T* difference) {
  T top = y[0];
  for (int64_t c = 1; c < classes; ++c) top = y[c] > top ? y[c] : top;
  T total = 0;
  for (int64_t c = 0; c < classes; ++c) total = total + (difference[c] = exp_of(y[c] - top));
  for (int64_t c = 0; c < classes; ++c) difference[c] = difference[c] / total - (c == label ? T(1) : T(0));
  return log_of(total) - (y[label] - top);
}

// Index: row.
struct SquaredHingeRow {
  const float* y;
  const int32_t* labels;
  int64_t classes;
  float *margin, *squares;  // [n, classes]
  uint32_t* flags;          // nullptr if all labels are known to be valid

  BITGRAD_HD void operator()(int64_t r) const {
    is_class(labels[r], classes, flags);
    hinge_row(y + r * classes, classes, labels[r], margin + r * classes, squares + r * classes);
  }
};

// Index: row.
struct SoftmaxRow {
  const float* y;
  const int32_t* labels;
  int64_t classes;
  float* difference;  // [n, classes]
  float* terms;       // [n]
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t r) const {
    const int32_t label = is_class(labels[r], classes, flags) ? labels[r] : 0;
    terms[r] = softmax_row(y + r * classes, classes, label, difference + r * classes);
  }
};

// The target of a row: a class (label >= 0), or probabilities.
struct RowTarget {
  int32_t label = -1;
  const float* probabilities = nullptr;  // [classes], if label < 0
  const float* weights = nullptr;        // [classes]; nullptr: 1
  double smoothing = 0;

  BITGRAD_HD double of(int64_t c) const {
    return label >= 0 ? (c == label ? 1.0 : 0.0) : static_cast<double>(probabilities[c]);
  }
  BITGRAD_HD double weight(int64_t classes) const {
    if (weights == nullptr) return 1.0;
    if (label >= 0) return static_cast<double>(weights[label]);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += static_cast<double>(probabilities[c]) * static_cast<double>(weights[c]);
    return sum;
  }
};

// slope = W (sum q * softmax(y) - q) for q = (1-e) t + e / classes; returns W sum_c q_c (log sum exp(y - max) - (y_c -
// max)). Sums are double, in ascending order of c.
template <typename T>
BITGRAD_HD inline T weighted_softmax_row(const T* y, int64_t classes, const RowTarget& target, T* slope) {
  T top = y[0];
  for (int64_t c = 1; c < classes; ++c) top = y[c] > top ? y[c] : top;
  const double even = target.smoothing / static_cast<double>(classes);
  double total = 0, cross = 0, mass = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const double q = (1.0 - target.smoothing) * target.of(c) + even;
    total += static_cast<double>(slope[c] = exp_of(y[c] - top));
    mass += q;
    if (q != 0.0) cross += q * static_cast<double>(y[c] - top);  // not 0 * -inf
  }
  const double w = target.weight(classes);
  for (int64_t c = 0; c < classes; ++c) {
    const double q = (1.0 - target.smoothing) * target.of(c) + even;
    slope[c] = static_cast<T>(w * (mass * static_cast<double>(slope[c]) / total - q));
  }
  return static_cast<T>(w * (mass * static_cast<double>(log_of(static_cast<T>(total))) - cross));
}

// Whether t[0 .. classes) are probabilities: at least 0, with sum 1 within 1e-3.
BITGRAD_HD inline bool is_distribution(const float* t, int64_t classes) {
  double sum = 0;
  bool fits = true;
  for (int64_t c = 0; c < classes; ++c) {
    fits = fits && t[c] >= 0.0f;
    sum += static_cast<double>(t[c]);
  }
  return fits && sum >= 0.999 && sum <= 1.001;
}

// Index: row.
struct WeightedSoftmaxRow {
  const float* y;
  const int32_t* labels;       // nullptr: probabilities
  const float* probabilities;  // [n, classes]
  const float* weights;        // [classes]; nullptr: 1
  int64_t classes;
  double smoothing;
  int32_t ignore;
  float* slope;  // [n, classes]
  float* terms;  // [n]
  uint32_t* flags;

  BITGRAD_HD void operator()(int64_t r) const {
    RowTarget target{-1, nullptr, weights, smoothing};
    if (labels == nullptr) {
      target.probabilities = probabilities + r * classes;
      if (!is_distribution(target.probabilities, classes)) or_flag(flags, 1u);
    } else if (labels[r] == ignore) {
      for (int64_t c = 0; c < classes; ++c) slope[r * classes + c] = 0.0f;
      terms[r] = 0.0f;
      return;
    } else {
      target.label = is_class(labels[r], classes, flags) ? labels[r] : 0;
    }
    terms[r] = weighted_softmax_row(y + r * classes, classes, target, slope + r * classes);
  }
};

// y = (*number * factor) * x.
struct ScaleByNumber {
  const float* number;
  float factor;
  const float* x;
  float* y;

  BITGRAD_HD void operator()(int64_t i) const { y[i] = (*number * factor) * x[i]; }
};

// Element-wise losses. docs/numerics.md section 10.

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
