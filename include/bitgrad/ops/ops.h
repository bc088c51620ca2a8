// Every op: one declaration. An op checks shapes, selects a kernel of its family, keeps the least that backward
// needs, and owns its backward. Numbers: docs/numerics.md. Shapes: n = samples (rows), f = features, o = outputs. All
// throw Error on a wrong shape or dtype.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bitgrad/autograd/op.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// y[n,o] = sum_i x[n,i] * w[o,i] (+ bias[o]), fp32 (fp64 when x and w are); further axes of x before i stay. x and w
// may be of any dtype, quantized or not; the product reads codes packed, forward and backward. Edges of integer
// operands carry the gradient of the *value*.
Var linear(const Var& x, const Var& w, const Var& bias = {});

// In what a product of a backward (or forward) is taken. docs/numerics.md section 5.
enum class ProductMode : uint8_t {
  kFp32,  // fp32 times codes expanded on the fly
  kBf16,  // the float operand rounded to bf16 (nearest even) first, after folding; sums in fp32
  kInt8,  // the float operand quantized to int8 (absmax, one scale per row that is not contracted), an integer product
};
std::string_view mode_name(ProductMode mode);  // "fp32", "bf16", "int8"

struct ProductModes {
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
  // int8: gradients are rounded by these draws (purpose kGradient, id of the layer's path, step = global microbatch;
  // element = row-major index in gy, plus g times the elements of gy for group g of gx; gW's in a second stream with
  // purpose kGradientWeight, which linear makes of this one); nullptr: to nearest. Copied when linear is called.
  const RandomStream* sr = nullptr;
  bool gx_per_group = false;  // int8 gx with weights per group along a row, groups of at least 64: one product a group
  DType y = dtypes::fp32;     // of the result: fp32, or bf16 (rounded once, after the bias); fp64 operands give fp64
  // A row of y has the bits that it has alone, in every mode of the bits: no order of summation depends on the number
  // of rows. docs/numerics.md section 4, "One row".
  bool row_alone = false;
};
// As linear, with the products of the backward taken in these modes. int8 needs the other operand in codes of an
// integer kind or sign without real offsets: gx needs w per tensor, channel or token (or groups of at least 64 along a
// row, on request), gW needs x per tensor, channel or token, and takes any granularity of w; both take integer zero
// points. A line of gy that holds a NaN or Inf gives NaN. Throws Error that says what to use instead, before any work,
// and only for operands whose gradient is wanted.
Var linear(const Var& x, const Var& w, const Var& bias, const ProductModes& modes);
// The float simulation: both operands are dequantized to fp32 and multiplied (and kept) as floats. For comparisons. y:
// dtype of the result, as ProductModes::y; row_alone: as there.
Var linear_simulated(const Var& x, const Var& w, const Var& bias = {}, DType y = dtypes::fp32, bool row_alone = false);

// Products of two activations, such as the scores of attention: y[.., m, n] = sum_k a[.., m, k] * b[.., k, n], or of
// b[.., n, k] with transposed_b; fp32 (fp64 when a and b are). Leading axes are equal, or b is a matrix that all of a
// is multiplied with. a and b: floats or codes of at most 8 bits, with or without scales (groups along axis 0 must not
// span two matrices), read as stored. Each member has the bits of the product alone. Gradients are those of the
// values, in fp32 (bf16 or fp64 as the edge asks). Throws Error for shapes that do not fit and for int32 and int64
// (out_dtype).
struct MatmulOptions {
  bool transposed_b = false;
};
Var matmul(const Var& a, const Var& b, const MatmulOptions& options = {});

// Linear layer whose input range is found at run time. x [n,i] fp32; w [o,i] packed codes (scales per tensor, channel
// or group, integer zero or real offset), or fp32; bias [o] fp32 or undefined; y [n,o] fp32.
struct DynamicLinearOptions {
  // Of x, used by forward int8. Default: int8 affine per token, rule identity. With another forward gw cannot be int8,
  // unless w wants no gradient.
  QuantSpec activation = {};
  ProductMode forward = ProductMode::kInt8, gx = ProductMode::kInt8, gw = ProductMode::kInt8;
  const RandomStream* activation_sr = nullptr;  // when `activation` rounds stochastically
  const RandomStream* gradient_sr = nullptr;    // as ProductModes::sr
  bool gx_per_group = false;
  DynamicLinearOptions();
};
Var quantized_linear_dynamic(const Var& x, const Var& w, const Var& bias = {},
                             const DynamicLinearOptions& options = {});

// Products and sums of bare integers (no scales on an operand: an Error), computed exactly and written as `dtype`:
// int32, int64, an int or uint dtype of at most 8 bits (saturated; `flag` gets kFlagSaturated), or fp32 (rounded once).
// Operands: any int, uint or sign dtype, int32, int64; any shape, empty too. Backward: the op's own rule on the
// numbers, in the dtype that the edge asks for.
//   matmul: a [m,k], b [k,n];  linear: a [m,k], b [n,k];  mul, add: equal shapes.
enum class IntegerOp : uint8_t { matmul, linear, mul, add };
inline constexpr uint32_t kFlagSaturated = 2u;
Var out_dtype(IntegerOp op, DType dtype, const Var& a, const Var& b, uint32_t* flag = nullptr);

// Integer layers: what stays in integers from the first quantize to the last dequantize.
// y [n,o] int32 with scale sx * sw: x [n,i] and w [o,i] of integer codes, x per tensor or token (no zero), w per tensor
// or channel (0), no zero; not both per token and per channel, as int32 has no scale for each element. bias [o] fp32 is
// rounded to int32 with that scale: rint(bias / (sx * sw)), x per tensor only. Sums that could leave int32 (K limits of
// docs/numerics.md section 4) are an Error; sum and bias together are clamped. Backward: as linear in fp32 mode.
Var integer_linear(const Var& x, const Var& w, const Var& bias = {});
// max(q, 0) of int32 with a scale. Backward: passes where q > 0.
Var integer_relu(const Var& x);
// int32 with scale s_in (per tensor, token or channel) -> codes q = clamp(rint(float(acc) * M) + z), M = fp32(s_in /
// s_out). `out`: params of the result, per tensor or token, integer zero or none. Backward (of the value): passes where
// the code before its clamp lies in the range of `dtype`.
Var requantize(const Var& x, DType dtype, std::shared_ptr<const QuantParams> out);
// The shift form: q = clamp((acc + 2^(k-1) - 1 + ((acc>>k)&1)) >> k), 1 <= k <= 31, the scale times 2^k.
Var requantize_shift(const Var& x, DType dtype, int k);

// Codes of x[n,f] (fp32, or bf16: the codes of the widened values) by the scheme, scales found from x. Backward: the
// scheme's straight-through rule, one bit an element. `sr`: needed for stochastic rounding. `flag` (optional) gets
// non-finite bits; without it a non-finite x throws.
struct QuantizeOpOptions {
  const RandomStream* sr = nullptr;
  int64_t first_element = 0;
  uint32_t* flag = nullptr;
  std::shared_ptr<const QuantParams> params = {};  // scales to use (an observer's) instead of those found from x
  bool transposed = false;  // the codes in layout `transposed` too, attached to the result: what an int8 gW may read
};
Var quantize(const Var& x, const QuantSpec& spec, const QuantizeOpOptions& options = {});
// Codes of x by a scheme with learned parts (LSQ, LSQ+, PACT): learned[i] are fp32 [blocks]. Their gradients are the
// sums of numerics.md section 3, divided by learned_divisor(n), n = elements that share a number without the batch
// axis.
Var quantize_learned(const Var& x, const QuantSpec& spec, const std::vector<Var>& learned,
                     const QuantizeOpOptions& options = {});
// y = x; the gradient that passes is quantized by `spec` (DoReFa's gradients: scheme dorefa_gradient, stochastic) and
// dequantized. `sr` draws: purpose kGradient.
Var quantize_gradient(const Var& x, const QuantSpec& spec, const RandomStream& sr);
// Values of a quantized x; of int32 float(q) * s. y: fp32, or bf16 (the fp32 value rounded once). Backward: the
// gradient passes as it is (it is taken with respect to the value).
Var dequantize(const Var& x, DType y = dtypes::fp32);
// x in another of the dtypes fp32 and bf16: rounded to nearest even, or widened, which is exact; x itself where it has
// that dtype. Backward: the gradient passes as it is.
Var cast(const Var& x, DType dtype);

// Rows of a table: ids [n,t] int32 or int64, a constant, each in [0, v), else an Error that names the place; w [v,d]
// fp32 (fp64), or codes in layout canonical with scales of any granularity -> y [n, t*d] fp32 (fp64), the values of the
// rows one beside the other; not flat: [n, t, d]. Backward: rows of w that several ids name get the sum in ascending
// order of r*t + c; no gradient flows to ids. dtype: of y where w is not fp64, fp32 or bf16 (the fp32 value rounded
// once).
Var embedding(const Var& ids, const Var& w, bool flat = true, DType dtype = dtypes::fp32);

// Dropout with probability p of dropping. Numbers (fp32, bf16 or fp64; y in x's dtype): y = x * keep / (1-p). Codes:
// dropped elements get the code of value 0 (bint1 becomes ternary), the scale is multiplied by 1/(1-p). Keep where
// bits16 >= round(p * 65536). x[n,f], element = (first_row + row) * f + column.
struct DropoutOptions {
  double p = 0.5;
  RandomStream stream = {};  // purpose kDropout, id of the site's path, step = global microbatch
  int64_t first_row = 0;
};
Var dropout(const Var& x, const DropoutOptions& options);

// Batch norm of x[..,f] per feature, and tensor norm over all of x (gamma and beta of shape [f], or [1]). x and y:
// fp32, fp64, or bf16 (computed in fp32 from the widened x, y rounded once; gamma and beta are fp32 then). Batch norm
// also takes int32 with a scale per tensor or channel(1), fewer than 2^31 rows: exact statistics, y fp32; the integers
// are kept, on the CPU in 16 bits where all of a batch fit. Training: statistics of x, and running = lerp(running, new,
// mom) (variance unbiased with max(count-1, 1)) is written into running_mean / running_var (fp32, [f] or [1]).
// Evaluation: the running statistics are used.
struct NormOptions {
  float eps = 1e-5f;
  float momentum = 0.1f;
  bool training = true;
  Tensor running_mean = {}, running_var = {};
};
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);
Var tensor_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);

// Layer norm and RMS norm over the last axis of x[.., d] (fp32, bf16 or fp64; y in its dtype): every row by its own
// statistics. gamma and beta are [d] in fp32 (fp64 for fp64); beta may be absent.
//   y = ((x - mean) / sqrt(var + eps)) * gamma + beta, var biased (arXiv 1607.06450, equation 3)
//   y = (x / sqrt(mean(x^2) + eps)) * gamma (arXiv 1910.07467, equation 4)
Var layer_norm(const Var& x, const Var& gamma, const Var& beta = {}, float eps = 1e-5f);
Var rms_norm(const Var& x, const Var& gamma, float eps = 1e-5f);

// Softmax over the last axis of x[.., d] (fp32, bf16 or fp64; y in its dtype): exp(x - max) / sum. A row that holds NaN
// or +Inf, or -Inf alone, becomes NaN.
Var softmax(const Var& x);
// int32 [..]: the first of the largest elements of the last axis of x[.., d], fp32 or bf16. NaN counts as the largest.
Tensor arg_max(const Tensor& x);

// Pointwise functions: unary.inc. relu, hardtanh, tanh, sigmoid, silu, gelu (with erf), gelu_tanh. x fp32, bf16
// (computed in fp32, rounded once) or fp64; y in its dtype.
Var unary(UnaryOp op, const Var& x);
#define BITGRAD_UNARY(name, value, derivative) \
  inline Var name(const Var& x) { return unary(UnaryOp::name, x); }
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY

// y = f(gate) * up (Shazeer 2020, arXiv 2002.05202; silu: SwiGLU), of one shape and dtype: fp32, bf16 (computed in
// fp32, rounded once) or fp64. In fp32 the bits of mul(unary(f, gate), up), without f(gate) kept for backward. One x
// [.., 2d]: gate is x[.., 0 .. d-1], up the rest, y [.., d].
Var gated(UnaryOp f, const Var& gate, const Var& up);
Var gated(UnaryOp f, const Var& x);

// y = a + b, a - b, a * b of one dtype: fp32, bf16 (computed in fp32, rounded once) or fp64. Shapes broadcast by
// NumPy's rules, up to 4 axes where they differ; the gradient of what is repeated is the sum over its repetitions.
Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
// The same elements in another shape.
Var reshape(const Var& x, const Shape& shape);
// What moves elements takes any dtype, dense; codes without a scale or with one for the whole tensor, which comes
// along. Axis i of the result is axis axes[i] of x: at most 4, each once, negative ones count from the end. The last
// axis of codes of fewer than 8 bits stays the last.
Var permute(const Var& x, const std::vector<int64_t>& axes);
// Elements [begin, end) of an axis. Of axis 0 a view, with scales of any granularity.
Var slice(const Var& x, int64_t axis, int64_t begin, int64_t end);
// The parts one after another along an axis: one dtype, one size but along that axis, equal scales.
Var concatenate(const std::vector<Var>& parts, int64_t axis);
// Sum of all elements, shape [].
Var sum(const Var& x);

// Losses: the *sum* over rows of logits [.., classes], shape [] (docs/numerics.md section 6). labels: a class for each
// row, dense int32 on the current device; on a device other than the CPU one that is no class fails when the flags are
// read (kernels/flag.h). The forms with labels of the host copy them.
// squared hinge: mean over classes of max(0, 1 - t*y)^2, t = +1 for the label's class, else -1.
Var squared_hinge(const Var& logits, const Tensor& labels);
Var squared_hinge(const Var& logits, std::span<const int32_t> labels);
// softmax cross-entropy: log(sum exp(y - max)) - (y_label - max).
Var softmax_cross_entropy_sum(const Var& logits, const Tensor& labels);
Var softmax_cross_entropy(const Var& logits, std::span<const int32_t> labels);

// Number of rows of logits fp32 [.., classes] whose largest logit (the first of equals) is the label's. Waits for the
// device.
int64_t count_correct(const Tensor& logits, std::span<const int32_t> labels);

// Losses that are the *mean* over what they count, shape [] (docs/numerics.md section 10). Outputs fp32, bf16 or fp64.
// Mean over all elements of (outputs - target)^2; target of the same shape, fp32 or bf16 (fp64 for fp64).
Var mean_squared_error(const Var& outputs, const Tensor& target);
// Mean over all elements of max(x, 0) - x t + log(1 + e^-|x|), the cross-entropy of sigmoid(x) with targets t in [0, 1]
// (TensorFlow, sigmoid_cross_entropy_with_logits); targets as above. One outside [0, 1] is an Error.
Var sigmoid_cross_entropy(const Var& logits, const Tensor& targets);
// Logits [.., classes], targets int32 [..]: mean of log(sum exp(y - max)) - (y_target - max) over the positions whose
// target is not `ignore_index`. A target that is neither, and targets of which none counts, are Errors, on a device
// when its errors are polled.
inline constexpr int32_t kIgnoreIndex = -100;
Var cross_entropy(const Var& logits, const Tensor& targets, int32_t ignore_index = kIgnoreIndex);
// Their sum, 0 where none counts.
Var cross_entropy_sum(const Var& logits, const Tensor& targets, int32_t ignore_index = kIgnoreIndex);

// What metrics are made of: one number on the current device, without waiting for it; logits and outputs fp32 or bf16.
// Counts are int64 [] and exact; sums are fp64 [], added in one order in double, the same bits on every device.
// Accuracy is top_k_count(k = 1) / target_count, perplexity exp(cross_entropy_total / target_count), bits per byte
// cross_entropy_total / (ln 2 * bytes), mean squared error squared_error_total / elements.
Tensor target_count(const Tensor& targets, int32_t ignore_index = kIgnoreIndex);
// Positions whose target is among the k largest logits; of equal logits the one with the lower index is before the
// other, and NaN is before every number. A NaN at the target does not count.
Tensor top_k_count(const Tensor& logits, const Tensor& targets, int64_t k, int32_t ignore_index = kIgnoreIndex);
// In nats, over the positions that count.
Tensor cross_entropy_total(const Tensor& logits, const Tensor& targets, int32_t ignore_index = kIgnoreIndex);
Tensor squared_error_total(const Tensor& outputs, const Tensor& target);

}  // namespace bitgrad
