// What a model computes in evaluation, as data: a list of operations on numbered values, each with its numbers. Layers
// state it once (Module::lower); exports and other programs of a model read it. Formulas: docs/numerics.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/ops/conv.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

class Module;

namespace inference {

using Value = int32_t;  // the node that makes it

struct Input {};
// fp32 to codes. Numbers of the rule (section 2), one or one a feature: scale s, shift m, zero z (added to the code).
struct Quantize {
  QuantSpec spec = {};
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;                     // clamp of the code
  std::vector<float> scale = {}, shift = {};  // empty: the rule has none
  std::vector<int32_t> zero = {};             // empty: 0
  bool found = false;                         // scales are found from x by spec's scheme: the three are empty
};
// int32 with a scale to codes: clamp(rint(float(acc) * min(fp32(s_in / s_out), largest)) + float(z)).
struct Requantize {
  QuantSpec spec = {};
  std::vector<float> factor = {};  // s_in / s_out, one or one a feature
  int32_t zero = 0;
  int64_t lo = 0, hi = 0;
};
struct Dequantize {};  // codes or int32 to fp32
// y[.., o] = sum over k of x w[o, k] (+ bias[o]); of images where `conv` is given. integer_out: int32, where bias is
// int32 too; sum and bias are clamped to int32.
struct Product {
  Tensor weight = {};  // [o, k], codes with scales, or fp32
  Tensor bias = {};    // [o] fp32 or int32; undefined: none
  std::optional<Conv2dOptions> conv = {};
  bool integer_out = false;
};
// ((x - mean) * inv) * gamma + beta: vectors of one number, or of one a feature; inv = 1 / sqrt(var + eps) in fp32.
struct Normalize {
  std::vector<float> mean = {}, inv = {}, gamma = {}, beta = {};
};
struct Pointwise {  // of fp32; relu of int32 too
  UnaryOp op = UnaryOp::relu;
};
struct MaxPool {
  PoolOptions options = {};
};
struct AvgPool {  // whole_image: options are not read; the result has no pixels
  PoolOptions options = {};
  bool whole_image = false;
};
struct Shortcut {  // shortcut_a of ops/spatial.h
  int64_t out = 0;
  std::array<int64_t, 2> stride{1, 1};
};
struct Prelu {
  std::vector<float> slope = {};  // one a feature
};
struct Shift {
  std::vector<float> shift = {};  // one a feature
};
struct Reshape {};  // elements in their order, as form.sample says
enum class JoinKind : uint8_t { kConcat, kAdd, kMultiply };
struct Join {  // in the order of the inputs; concat along the last axis
  JoinKind kind = JoinKind::kAdd;
};

using Operation = std::variant<Input, Quantize, Requantize, Dequantize, Product, Normalize, Pointwise, MaxPool, AvgPool,
                               Shortcut, Prelu, Shift, Reshape, Join>;

struct Node {
  std::string layer = {};  // path of the layer that states it, such as "layers.3"
  Operation operation = {};
  std::vector<Value> inputs = {};
  Form form = {};  // of the result
  // What turns the codes or int32 of the result into values; null: nothing does, or it is found at run time
  // (form.scales tells which).
  std::shared_ptr<const QuantParams> params = {};
};

class Graph {
 public:
  explicit Graph(const Form& input);
  Value add(Node node);
  const Node& operator[](Value value) const { return nodes_.at(static_cast<size_t>(value)); }
  const std::vector<Node>& nodes() const { return nodes_; }
  // The value of the model.
  Value output() const { return static_cast<Value>(nodes_.size()) - 1; }
  // How many nodes read it.
  int readers(Value value) const;
  // The only reader; nullptr: several, or none.
  const Node* only_reader(Value value) const;

 private:
  std::vector<Node> nodes_;
};

// Of a model that is initialized and planned, whose layers say what they compute. Its numbers are on the host. Throws
// LayerError for a layer that does not, for adapters, and for quantization that is switched off or was never set.
Graph lowered(Module& model, const Form& input);

}  // namespace inference
}  // namespace bitgrad
