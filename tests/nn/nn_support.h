// Specs that the tests of nn, optim and the promise share.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "support/numbers.h"

namespace bitgrad::test {

inline QuantSpec quant_spec(DType dtype, const std::string& scheme, Rounding rounding = Rounding::kNearest) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = scheme;
  spec.rounding = rounding;
  return spec;
}

// A scheme that fits a weight dtype: of each kind the usual one.
inline QuantSpec usual_weight_spec(DType dtype) {
  const DTypeInfo& info = dtype.info();
  if (info.kind == DTypeKind::kSign) return quant_spec(dtype, "binary");
  if (info.kind == DTypeKind::kCodebook) return quant_spec(dtype, "codebook");
  if (info.kind == DTypeKind::kUint) return quant_spec(dtype, dtype.bits() == 1 ? "step" : "affine");
  if (info.qmin == -1 && info.qmax == 1) return quant_spec(dtype, "ternary");
  return quant_spec(dtype, "symmetric");
}

// Whether the scheme rounds to integers, so that it can round stochastically.
inline bool can_round_stochastically(const QuantSpec& spec) {
  return spec.scheme != "binary" && spec.scheme != "codebook" && spec.scheme != "step";
}

// Relative Frobenius distance: |a - b| / |b|.
inline double distance(const Tensor& a, const Tensor& b) {
  double d = 0, n = 0;
  const std::vector<double> x = a.elements(), y = b.elements();
  for (size_t i = 0; i < x.size(); ++i) {
    d += (x[i] - y[i]) * (x[i] - y[i]);
    n += y[i] * y[i];
  }
  return std::sqrt(d / n);
}

inline ParameterSpec weight_spec(const QuantSpec& quant, DType grad = dtypes::fp32) {
  ParameterSpec spec;
  spec.quant = quant;
  spec.grad = grad;
  spec.init = {"uniform", -1, 1};
  return spec;
}

}  // namespace bitgrad::test
