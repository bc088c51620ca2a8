// The ops: one declaration each. An op checks shapes, selects a kernel of its family, keeps the minimum that backward
// needs, and owns its backward. Numerics: docs/numerics.md. Shapes: n = samples (rows), f = features, o = outputs. All
// throw Error on a wrong shape or dtype.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/autograd/op.h"
#include "bitgrad/ops/product_modes.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]) in fp32 (fp64 if x and w are fp64); further axes of x before i are kept. x
// and w may have any dtype, quantized or not; codes are read packed, forward and backward. The gradient of an integer
// operand is taken with respect to its dequantized *value*.
Var linear(const Var& x, const Var& w, const Var& bias = {});

// As linear, with the given modes for the backward products. int8 needs the other operand in codes of an integer kind
// or sign, without real offsets: gx needs w per tensor, channel or token (or, with gx_per_group, in groups of at least
// 64 along a row); gW needs x per tensor, channel or token and accepts any granularity of w. Both accept integer zero
// points. A line of gy that holds NaN or Inf gives NaN. Throws Error before any work, only for operands whose gradient
// is wanted; the message says what to use instead.
Var linear(const Var& x, const Var& w, const Var& bias, const ProductModes& modes);
// Float simulation for comparison: both operands are dequantized to fp32, then multiplied (and kept) as floats. y:
// dtype of the result, as ProductModes::y; row_alone as there.
Var linear_simulated(const Var& x, const Var& w, const Var& bias = {}, DType y = dtypes::fp32, bool row_alone = false);

// Product of two activations, such as attention scores: y[.., m, n] = sum_k a[.., m, k] * b[.., k, n], or with
// transposed_b of b[.., n, k]; fp32 (fp64 if a and b are fp64). Leading axes must be equal, or b is one matrix shared
// by all of a. a and b are floats or codes of at most 8 bits, with or without scales (groups along axis 0 must not span
// two matrices), read as stored. Each matrix of the batch has the bits of the same product on its own. Gradients are
// those of the dequantized values, in fp32 (bf16 or fp64 if the edge asks for it). Throws Error for shapes that do not
// match and for int32 and int64 (use out_dtype).
struct MatmulOptions {
  bool transposed_b = false;
};
Var matmul(const Var& a, const Var& b, const MatmulOptions& options = {});

// Linear layer with dynamic input quantization. x [n,i] fp32; w [o,i] packed codes (scales per tensor, channel or
// group, integer zero point or real offset) or fp32; bias [o] fp32 or undefined; y [n,o] fp32.
struct DynamicLinearOptions {
  // Quantizes x for forward int8. Default: int8 affine per token, rule identity. If forward is not int8, gw cannot be
  // int8 unless w needs no gradient.
  QuantSpec activation = {};
  ProductMode forward = ProductMode::kInt8, gx = ProductMode::kInt8, gw = ProductMode::kInt8;
  const RandomStream* activation_sr = nullptr;  // if `activation` rounds stochastically
  const RandomStream* gradient_sr = nullptr;    // as ProductModes::sr
  bool gx_per_group = false;
  DynamicLinearOptions();
};
Var quantized_linear_dynamic(const Var& x, const Var& w, const Var& bias = {},
                             const DynamicLinearOptions& options = {});

// Exact products and sums of bare integers, returned as `dtype`: int32, int64, an int or uint dtype of at most 8 bits
// (saturated; sets kFlagSaturated in `flag`), or fp32 (rounded once). Operands: any int, uint or sign dtype, int32,
// int64; any shape, empty ones included. Throws Error if an operand has scales. Backward: the op's usual rule on the
// integers as values, in the dtype that the edge asks for.
//   matmul: a [m,k], b [k,n];  linear: a [m,k], b [n,k];  mul, add: equal shapes.
enum class IntegerOp : uint8_t { matmul, linear, mul, add };
inline constexpr uint32_t kFlagSaturated = 2u;
Var out_dtype(IntegerOp op, DType dtype, const Var& a, const Var& b, uint32_t* flag = nullptr);

// Integer layers: everything stays in integers from the first quantize to the last dequantize.
// y [n,o] int32 with scale sx * sw, for integer codes x [n,i] (per tensor or token, no zero point) and w [o,i] (per
// tensor or channel(0), no zero point); token and channel scales cannot be combined, since int32 has no per-element
// scale. bias [o] fp32 is rounded to int32 with that scale: rint(bias / (sx * sw)); this requires x per tensor. Throws
// Error if sums could overflow int32 (K limits of docs/numerics.md section 4); the sum including bias is clamped.
// Backward: as linear in fp32 mode.
Var integer_linear(const Var& x, const Var& w, const Var& bias = {});
// max(q, 0) of a scaled int32. Backward: passes the gradient where q > 0.
Var integer_relu(const Var& x);
// Scaled int32 (per tensor, token or channel, scale s_in) to codes: q = clamp(rint(float(acc) * M) + z), M = fp32(s_in
// / s_out). `out`: parameters of the result, per tensor or token, integer zero point or none. Backward (of the value):
// passes the gradient where the code before clamping lies in the range of `dtype`.
Var requantize(const Var& x, DType dtype, std::shared_ptr<const QuantParams> out);
// Power-of-two form: q = clamp((acc + 2^(k-1) - 1 + ((acc>>k)&1)) >> k), 1 <= k <= 31; the scale is multiplied by 2^k.
Var requantize_shift(const Var& x, DType dtype, int k);

// Quantizes x[n,f] (fp32, or bf16 as its fp32 values) by the scheme, with scales computed from x. Backward: the
// scheme's straight-through rule, keeping one bit per element. `sr` is required for stochastic rounding. Non-finite
// input sets bits in `flag`, or throws if there is no flag.
struct QuantizeOpOptions {
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;
  uint32_t* flag = nullptr;
  std::shared_ptr<const QuantParams> params = {};  // scales to use instead (an observer's)
  bool transposed = false;  // also attach the codes in layout `transposed`, which an int8 gW may read
};
Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options = {});
// Quantizes x by a scheme with learned parts (LSQ, LSQ+, PACT); learned[i] is fp32 [blocks]. Gradients of learned parts
// are the sums of docs/numerics.md section 3 divided by learned_divisor(n), where n is the number of elements that
// share the learned value, not counting the batch axis.
Var quantize_learned(const Var& x, const QuantSpec& spec, const std::vector<Var>& learned,
                     const QuantizeOpOptions& options = {});
// y = x; in backward the gradient is quantized by `spec` and dequantized (DoReFa: scheme dorefa_gradient, stochastic).
// `sr`: draws with purpose kGradient.
Var quantize_gradient(const Var& x, const QuantSpec& spec, const RandomStream& sr);
// Dequantizes x; for int32, float(q) * s. y: fp32, or bf16 (the fp32 value rounded once). Backward: the gradient passes
// unchanged (it is taken with respect to the value).
Var dequantize(const Var& x, DType y = dtypes::fp32);
// Converts between fp32 and bf16: rounds to nearest even, or widens exactly. Returns x itself if it has that dtype.
// Backward: the gradient passes unchanged.
Var cast(const Var& x, DType dtype);

// Table lookup. ids [n,t] int32 or int64 (constant) must be in [0, v); otherwise throws Error that names the position.
// w [v,d] fp32 (fp64), or codes in layout canonical with scales of any granularity. Returns y [n, t*d] fp32 (fp64), the
// rows of a sample side by side; if not flat, [n, t, d]. `dtype` of y, unless w is fp64: fp32, or bf16 (the fp32 value
// rounded once). Backward: rows of w named by several ids get the sum in ascending order of r*t + c; ids get no
// gradient.
Var embedding(const Var& ids, const Var& w, bool flat = true, DType dtype = dtypes::fp32);

// Dropout; p is the probability of dropping an element. Floats (fp32, bf16 or fp64; y in x's dtype): y = x * keep /
// (1-p). Codes: dropped elements get the code of value 0 (bint1 becomes ternary), and the scale is multiplied by
// 1/(1-p). An element is kept if bits16 >= round(p * 65536). x[n,f], element = (first_row + row) * f + column.
struct DropoutOptions {
  double p = 0.5;
  RandomStream stream = {};  // purpose kDropout, id of the call site's path, step = global microbatch
  int64_t first_row = 0;
};
Var dropout(const Var& x, const DropoutOptions& options);

// Batch norm of x[..,f] per feature, and tensor norm over all of x (gamma and beta of shape [f], or [1]). x and y:
// fp32, fp64, or bf16 (computed in fp32, y rounded once; gamma and beta in fp32). Batch norm also accepts int32 with a
// scale per tensor or channel(1) and fewer than 2^31 rows: exact statistics, y fp32; the integers are kept for
// backward, on the CPU in 16 bits if the whole batch fits. Training: uses the statistics of x and writes running =
// lerp(running, new, momentum) into running_mean / running_var (fp32, [f] or [1]; variance unbiased with max(count-1,
// 1)). Evaluation: uses the running statistics.
struct NormOptions {
  float eps = 1e-5f;
  float momentum = 0.1f;
  bool training = true;
  Tensor running_mean = {}, running_var = {};
};
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);
Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);

// Layer norm and RMS norm over the last axis of x[.., d] (fp32, bf16 or fp64; y in its dtype), each row by its own
// statistics. gamma and beta are [d] in fp32 (fp64 for fp64); beta may be undefined.
//   y = ((x - mean) / sqrt(var + eps)) * gamma + beta, var biased (arXiv 1607.06450, equation 3)
//   y = (x / sqrt(mean(x^2) + eps)) * gamma (arXiv 1910.07467, equation 4)
Var layer_norm(const Var& x, const Var& gamma, const Var& beta = {}, float eps = 1e-5f);
Var rms_norm(const Var& x, const Var& gamma, float eps = 1e-5f);

// Softmax over the last axis of x[.., d] (fp32, bf16 or fp64; y in its dtype): exp(x - max) / sum. A row that contains
// NaN or +Inf, or only -Inf, becomes NaN.
Var softmax(const Var& x);

// Ops with one learned value per channel (the last axis). Both throw Error on a wrong shape or dtype.

// y = x > 0 ? x : slope[c] * x for x [..,c] (He et al. 2015, arXiv 1502.01852, equation 1). x fp32 or bf16 (computed in
// fp32, rounded once) with slope [c] in fp32, or both fp64. Backward: x = 0 counts as negative; the gradient of slope
// is the sum of gy * x over x <= 0.
Var prelu(const Var& x, const Var& slope);
// y = x + b[c] for x [..,c]; dtypes as in prelu. Backward: the gradient of b is the sum of gy.
Var shift(const Var& x, const Var& b);

// y = a + b, a - b, a * b, both of one dtype: fp32, bf16 (computed in fp32, rounded once) or fp64. Shapes broadcast as
// in NumPy, with at most 4 axes where they differ; the gradient of a broadcast operand is summed over its repetitions.
Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
// y = x * factor, in fp32, bf16 (computed in fp32, rounded once) or fp64. factor must be finite.
Var times(const Var& x, float factor);
// Equivalent to unary(hardtanh, add(a, b)): same bits forward and backward, same errors. For fp32 tensors of equal
// shape on the CPU it runs in one pass and keeps one bit per element for backward instead of the sum; otherwise it runs
// the two ops.
Var add_hardtanh(const Var& a, const Var& b);

// Same elements, new shape.
Var reshape(const Var& x, const Shape& shape);
// The ops below move elements without computing; any dtype, dense. Codes must have no scale or a single per-tensor
// scale, which is passed on.
// Axis i of the result is axis axes[i] of x: at most 4, each once, negative ones count from the end. For codes of fewer
// than 8 bits the last axis must stay last.
Var permute(const Var& x, const std::vector<int64_t>& axes);
// Elements [begin, end) of an axis. Along axis 0 a view, for scales of any granularity.
Var slice(const Var& x, int64_t axis, int64_t begin, int64_t end);
// Concatenates along an axis: equal dtypes, scales, and sizes of the other axes.
Var concatenate(const std::vector<Var>& parts, int64_t axis);
// Sum of all elements, shape [].
Var sum(const Var& x);

// Losses that return the *sum* over the rows of logits [.., classes], shape [] (docs/numerics.md section 6). labels:
// one class per row, dense int32 on the current device. On devices other than the CPU an invalid label fails when flags
// are read (kernels/flag.h). The overloads with host labels copy them.
// Squared hinge: mean over classes of max(0, 1 - t*y)^2, t = +1 for the label's class, else -1.
Var squared_hinge(const Var& logits, const Tensor& labels);
Var squared_hinge(const Var& logits, std::span<const int32_t> labels);

// Number of rows of logits fp32 [.., classes] whose maximum (the first, if tied) is at the label. Synchronizes with the
// device.
int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels);

// Losses that return the *mean* over the elements that count, shape [] (docs/numerics.md section 10). Outputs fp32,
// bf16 or fp64.
// Mean over all elements of (outputs - target)^2; target of the same shape, fp32 or bf16 (fp64 for fp64).
Var mean_squared_error(const Var& outputs, const Tensor& target);
// Mean over all elements of max(x, 0) - x t + log(1 + e^-|x|), the cross-entropy of sigmoid(x) with targets t in [0, 1]
// (TensorFlow's sigmoid_cross_entropy_with_logits); targets as above. Throws Error for a target outside [0, 1].
Var sigmoid_cross_entropy(const Var& logits, const Tensor& targets);
// The same with the term of t, -t log p, times pos_weight[c] for output c of the last axis; pos_weight: fp32 [outputs].
Var weighted_sigmoid_cross_entropy(const Var& logits, const Tensor& targets, const Tensor& pos_weight);
inline constexpr int32_t kIgnoreIndex = -100;
enum class Reduction { kMean, kSum };
// Logits [.., classes], targets int32 [..]: mean or sum of log(sum exp(y - max)) - (y_target - max) over the positions
// whose target is not `ignore_index`. Throws Error for any other target that is no class, and for the mean if no
// position counts; on a device when its errors are polled. Without ignore_index, kSum alone, every row counts: logits
// fp32 or fp64, errors and order of summation as of the losses of one class per row above.
Var cross_entropy(const Var& logits, const Tensor& targets, Reduction reduction = Reduction::kMean,
                  std::optional<int32_t> ignore_index = kIgnoreIndex);
// Cross-entropy with class weights, label smoothing, or probabilities as targets. Logits fp32 [.., classes].
struct CrossEntropyOptions {
  Tensor weights = {};   // fp32 [classes]; undefined: each class weighs 1
  double smoothing = 0;  // e in [0, 1)
  int32_t ignore_index = kIgnoreIndex;
};
// The sum over the rows of W * sum_c q_c (log(sum exp(y - max)) - (y_c - max)), q = (1-e) t + e / classes. Targets
// int32
// [..]: t = onehot, W = weights[target], rows of `ignore_index` do not count. Targets fp32 [.., classes]: t itself, W =
// sum_c t_c weights_c. Throws Error for a target that is no class, and for a row that is not at least 0 with sum 1
// (within 1e-3); on a device when its errors are polled.
Var weighted_cross_entropy_sum(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options);

// Inputs of metrics: one value each, on the current device, without synchronizing; logits and outputs fp32 or bf16.
// Counts are exact int64 []; sums are fp64 [], added in double in a fixed order, with the same bits on every device.
// Accuracy is top_k_count(k = 1) / target_count, mean squared error squared_error_total / elements.
Tensor target_count(const Tensor& targets, int32_t ignore_index = kIgnoreIndex);
// Positions whose target is among the k largest logits. Of equal logits the lower index ranks first, and NaN ranks
// above every other value. A NaN at the target does not count.
Tensor top_k_count(const Tensor& logits, const Tensor& targets, int64_t k, int32_t ignore_index = kIgnoreIndex);
Tensor squared_error_total(const Tensor& outputs, const Tensor& target);

}  // namespace bitgrad
