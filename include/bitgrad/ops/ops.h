// Every op: one declaration. An op checks shapes, asks its kernel family for a row, keeps the least that backward
// needs, and owns its backward. Numbers: docs/numerics.md. Shapes: n = samples (rows), f = features, o = outputs. All
// throw Error on a wrong shape or dtype.
#pragma once

#include <span>
#include <string>

#include "bitgrad/autograd/op.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]), fp32 (fp64 when x and w are). x and w may be of any dtype, quantized or
// not; the product reads codes packed, forward and backward. Edges of integer operands carry the gradient of the
// *value*.
Var linear(const Var& x, const Var& w, const Var& bias = {});

// Codes of x[n,f] (fp32) by the scheme, scales found from x. Backward: the scheme's straight-through rule, one bit an
// element. `sr`: needed for stochastic rounding. `flag` (optional) gets non-finite bits; without it a non-finite x
// throws.
struct QuantizeOpOptions {
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;
  uint32_t* flag = nullptr;
};
Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options = {});
// Values of a quantized x as fp32. Backward: the gradient passes as it is (it is taken with respect to the value).
Var dequantize(const Var& x);

// Dropout with probability p of dropping. Numbers: y = x * keep / (1-p). Codes: dropped elements get the code of value
// 0 (bint1 becomes ternary), the scale is multiplied by 1/(1-p). Keep where bits16 >= round(p * 65536). x[n,f], element
// = (first_row + row) * f + column.
struct DropoutOptions {
  double p = 0.5;
  RandomStream stream;  // purpose kDropout, id of the site's path, step = global microbatch
  int64_t first_row = 0;
};
Var dropout(const Var& x, const DropoutOptions& options);

// Batch norm of x[n,f] per feature, and tensor norm over all of x (gamma and beta of shape [f], or [1]). Training:
// statistics of x, and running = (1-mom)*running + mom*new (variance unbiased with max(count-1, 1)) is written into
// running_mean / running_var (fp32, [f] or [1]). Evaluation: the running statistics are used.
struct NormOptions {
  float eps = 1e-5f;
  float momentum = 0.1f;
  bool training = true;
  Tensor running_mean, running_var;
};
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);
Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);

// Pointwise functions: unary.inc. relu, hardtanh, tanh, sigmoid.
Var unary(UnaryOp op, const Var& x);
#define BITGRAD_UNARY(name, value, derivative) \
  inline Var name(const Var& x) { return unary(UnaryOp::name, x); }
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY

// y = a + b, y = a * b (same shape, fp32 or fp64).
Var add(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
// The same elements in another shape.
Var reshape(const Var& x, const Shape& shape);
// Sum of all elements, shape [].
Var sum(const Var& x);

// Losses: the *sum* over samples, shape [] (docs/numerics.md section 6). logits [n, classes]; labels n class indices.
// squared hinge: mean over classes of max(0, 1 - t*y)^2, t = +1 for the label's class, else -1.
Var squared_hinge(const Var& logits, std::span<const int32_t> labels);
// softmax cross-entropy: log(sum exp(y - max)) - (y_label - max).
Var softmax_cross_entropy(const Var& logits, std::span<const int32_t> labels);

// Number of rows whose largest logit (the first of equals) is the label's.
int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels);

}  // namespace bitgrad
