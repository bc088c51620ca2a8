// Networks of integers alone, compute: integer. What evaluation computes, and what C and .tflite files hold, is one
// graph of integer operations, so their codes are equal. docs/numerics.md section 4, "The integer scheme".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/nn/inference.h"

namespace bitgrad {

class Module;

namespace inference {

// Value of a code: scale * (code - zero).
struct CodeScale {
  float scale = 1;
  int32_t zero = 0;
  friend bool operator==(const CodeScale&, const CodeScale&) = default;
};
// The scale of a node whose result is codes with one scale per tensor. Throws Error for other nodes.
CodeScale code_scale(const Node& node);

// The graph of integers that `lowered` means. Its nodes:
//   0             Input, fp32: values, as `lowered` takes them
//   1             Quantize to int8. Files whose input are codes leave both to their caller
//   ...           Product (integer_out) read by one Requantize alone; IntegerAdd, IntegerMultiply, IntegerAvgPool,
//                 Table, Requantize of codes; MaxPool, Reshape and Join kConcat, whose inputs and results have one
//                 scale
//   last          Dequantize to fp32 of int8 codes. Files whose results are codes leave it out
// Every other value is int8 with one scale and zero point per tensor (params), except the int32 of products. A Product
// has codes of at most 8 bits, with one scale per output channel or tensor and no zero point, and a bias of int32:
// rint(b / (s_x * s_w)), which is always there and does not hold the zero point of x: the sum is
//   bias[o] + sum over k of w[o, k] * (x[k] - z_x), and pixels outside the image count as z_x.
// Norms are folded into scales and biases, activations into lo and hi. Throws LayerError that names the layer and the
// reason for what has no integer form: values without a static scale per tensor of int8, weights with zero points or
// groups, layers of floats.
// `quantizers`, if given, gets the value of each quantizer in `lowered`, by its path.
Graph integer_graph(const Graph& lowered, OutputRounding rule, std::map<std::string, Value>* quantizers = nullptr);

// The rule of a model whose layers have compute: integer; nullopt: none has. Throws LayerError if some have and others
// have not, or if their rules differ.
std::optional<OutputRounding> integer_rule(Module& model);
// What evaluation of the model computes and files hold: lowered(model, input), for compute: integer as integer_graph.
Graph deployed(Module& model, const Form& input);

namespace integer {
struct Step;
}
// Computes an integer graph on the device that was current when it was made.
class IntegerNetwork {
 public:
  explicit IntegerNetwork(Graph graph);
  // x [n, sample...] fp32. Returns the values of the last node. `values`, if given, gets those of every node, [n,
  // sample...] in its dtype; those of a product hold its bias. Throws Error(kNonFinite) for NaN and Inf.
  Tensor run(const Tensor& x, std::vector<Tensor>* values = nullptr) const;
  const Graph& graph() const { return graph_; }

 private:
  Tensor run_node(Value at, const std::vector<Tensor>& values, const Tensor& x, bool direct) const;
  bool goes_direct(Value product) const;
  Graph graph_;
  std::shared_ptr<const std::vector<integer::Step>> steps_;  // of each node (nn/integer_steps.h)
};

// How often a range is too narrow: codes of `layer` that its observed range clamps, as a part of all of its codes. What
// an activation bounds (relu, hardtanh) does not count, nor what is below a range that begins at 0.
struct ClampedCodes {
  std::string layer = {};
  double share = 0;
};
// One for each value that becomes codes behind sums, in order. batches: as IntegerNetwork::run takes them.
std::vector<ClampedCodes> clamped_codes(const IntegerNetwork& network, std::span<const Tensor> batches);

}  // namespace inference
}  // namespace bitgrad
