// What a model computes in evaluation, as data: a list of operations on numbered values. Each layer lowers itself to
// these nodes (Module::lower); exporters consume them. Formulas: docs/numerics.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bitgrad/kernels/unary_op.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/integer_ops.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

class Module;

namespace inference {

using Value = int32_t;  // index of the node that produces it

struct Input {};
// fp32 to codes. Parameters of the rule (docs/numerics.md section 2), one or one per feature: scale s, shift m, zero
// point z (added to the code).
struct Quantize {
  QuantSpec spec = {};
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;                     // clamp range of the code
  std::vector<float> scale = {}, shift = {};  // empty: not used by the rule
  std::vector<int32_t> zero = {};             // empty: 0
  bool dynamic = false;  // scales are computed from x by spec's scheme; the three vectors are empty
};
// Scaled int32 to codes: clamp(r + zero, lo, hi), with r by the rule: of kFloat rint(float(acc) * min(factor,
// largest)), of the others quant/fixed_point.h. In integer graphs also codes to codes of another scale: acc = code -
// zero_in.
struct Requantize {
  QuantSpec spec = {};
  std::vector<float> factor = {};  // s_in / s_out, one or one per feature; of rule kFloat
  int32_t zero = 0;
  int64_t lo = 0, hi = 0;
  OutputRounding rule = OutputRounding::kFloat;
  std::vector<FixedPoint> multiplier = {};  // s_in / s_out, one or one per feature; of the other rules
  int32_t zero_in = 0;
};
struct Dequantize {};  // codes or int32 to fp32
// y[.., o] = sum over k of x w[o, k] (+ bias[o]); a convolution if `conv` is set. integer_out: y and bias are int32,
// and the sum including bias is clamped to int32.
struct Product {
  Tensor weight = {};  // [o, k], codes with scales, or fp32
  Tensor bias = {};    // [o] fp32 or int32; undefined: no bias
  std::optional<Conv2dOptions> conv = {};
  bool integer_out = false;
};
// ((x - mean) * inv) * gamma + beta, inv = 1 / sqrt(var + eps) in fp32. Vectors of one element or one per feature.
struct Normalize {
  std::vector<float> mean = {}, inv = {}, gamma = {}, beta = {};
};
// Each row along the last axis by its own statistics: layer_norm (centered) or rms_norm of docs/numerics.md.
struct RowNorm {
  bool centered = true;
  float eps = 0;
  std::vector<float> gamma = {}, beta = {};  // one per feature; beta empty: none
};
struct Gate {  // op(a) * b of the halves a and b of the last axis
  UnaryOp op = UnaryOp::silu;
};
struct Times {  // y = x * factor
  float factor = 1;
};
struct Embedding {    // the row of each id, along a new last axis
  Tensor table = {};  // [ids, features], codes with scales, or fp32
};
struct Positions {    // row p of a sequence plus row p of the table
  Tensor table = {};  // [positions, features] fp32
};
// q and k of rows of q, k and v side by side, by their root mean square (ops/attention.h, qk_norm).
struct QkNorm {
  int64_t heads = 0, kv_heads = 0;
  float eps = 0;
  std::vector<float> q = {}, k = {};  // gamma: of a head, or of all heads
};
struct Rope {  // the leading heads of each row, rotated by its position
  RopeOptions options = {};
  int64_t heads = 0;
};
struct Attention {  // causal, of q, k and v side by side; dropout and starts are not set
  AttentionOptions options = {};
};
struct Pointwise {  // on fp32; relu also on int32
  UnaryOp op = UnaryOp::relu;
};
struct MaxPool {
  PoolOptions options = {};
};
struct AvgPool {  // whole_image: global pooling; options are ignored and the result has no pixel axes
  PoolOptions options = {};
  bool whole_image = false;
};
struct Shortcut {  // shortcut_a of ops/spatial.h
  int64_t out = 0;
  std::array<int64_t, 2> stride{1, 1};
};
struct Prelu {
  std::vector<float> slope = {};  // one per feature
};
struct Shift {
  std::vector<float> shift = {};  // one per feature
};
struct Reshape {};  // same elements in the same order, new shape form.sample
enum class JoinKind : uint8_t { kConcat, kAdd, kMultiply };
struct Join {  // inputs in order; concat along the last axis
  JoinKind kind = JoinKind::kAdd;
};

// Operations of integer graphs (nn/integer_graph.h), on int8 codes; IntegerAdd and IntegerMultiply are in
// nn/integer_ops.h. Formulas: docs/numerics.md section 4, "The integer scheme"; code_of computes them.

// Mean of codes, in the scale of its input. whole_image as in AvgPool.
struct IntegerAvgPool {
  PoolOptions options = {};
  bool whole_image = false;
  int64_t lo = 0, hi = 0;
};
struct Table {  // y = codes[x + 128]
  std::array<int8_t, 256> codes{};
  std::string function = {};  // what it was made from, such as "tanh"; empty: a mere change of scale
};

using Operation = std::variant<Input, Quantize, Requantize, Dequantize, Product, Normalize, Pointwise, MaxPool, AvgPool,
                               Shortcut, Prelu, Shift, Reshape, Join, RowNorm, Gate, Times, Embedding, Positions,
                               QkNorm, Rope, Attention, IntegerAdd, IntegerMultiply, IntegerAvgPool, Table>;

// The code of one element (`feature`: its index along the last axis), and of a window of `count` codes with this sum.
int32_t code_of(const Requantize& op, int32_t sum, int64_t feature);
int32_t code_of(const IntegerAvgPool& op, int32_t sum, int32_t count);

struct Node {
  std::string layer = {};  // path of the layer that it was lowered from, e.g. "layers.3"
  Operation operation = {};
  std::vector<Value> inputs = {};
  Form form = {};  // of the result
  // Dequantization parameters of a result in codes or int32; nullptr if there are none or they are computed at run time
  // (form.scales distinguishes the two).
  std::shared_ptr<const QuantParams> params = {};
};

class Graph {
 public:
  explicit Graph(const Form& input);
  Value add(Node node);
  const Node& operator[](Value value) const { return nodes_.at(static_cast<size_t>(value)); }
  const std::vector<Node>& nodes() const { return nodes_; }
  // The model's output: the last node.
  Value output() const { return static_cast<Value>(nodes_.size()) - 1; }
  // Number of nodes that read `value`.
  int readers(Value value) const;
  // The only reader, or nullptr if there are several or none.
  const Node* only_reader(Value value) const;

 private:
  std::vector<Node> nodes_;
};

// Lowers an initialized and planned model; all tensors of the graph are on the host. Throws LayerError for a layer that
// cannot be lowered, for adapters, and for quantization that is switched off or was never set up.
Graph lowered(Module& model, const Form& input);

}  // namespace inference
}  // namespace bitgrad
