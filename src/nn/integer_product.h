// Products of integer graphs: norms folded into their scales and biases. docs/numerics.md section 4, "The integer
// scheme".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/nn/module.h"

namespace bitgrad::inference::integer {

// Throws LayerError for a node that has no integer form.
template <typename... Parts>
[[noreturn]] void refuse_integer(const Node& node, const Parts&... parts) {
  throw LayerError(node.layer, concat("[compute: integer] the layer ", parts...), ErrorCode::kUsage);
}

// y = g * x + b for each feature, in double: the norms, factors and shifts behind a product.
class ChannelLine {
 public:
  // Takes a node that is in front of those taken so far. Returns false for another kind of node.
  bool take(const Node& node);
  double g(size_t feature) const { return g_.size() == 1 ? g_[0] : g_[feature]; }
  double b(size_t feature) const { return b_.size() == 1 ? b_[0] : b_[feature]; }

 private:
  void compose(const std::vector<double>& g, const std::vector<double>& b);
  std::vector<double> g_{1}, b_{0};
};

struct FoldedProduct {
  Product product = {};
  std::vector<float> scales = {};  // of its weight, one per output channel
};
// The product of codes of scale `x` with `line` folded in; s_y: scale of what it becomes. Throws LayerError for weights
// without an integer form.
FoldedProduct fold(const Node& node, const Product& op, const ChannelLine& line, const CodeScale& x, float s_y);
// Scales of the sums: fp32(s_x * s_w).
std::shared_ptr<const QuantParams> sum_params(float s_x, const std::vector<float>& s_w);

// Factors from (s_x * s_w) to s_y by the rule; zero points and bounds are not set. Throw LayerError that names `node`
// for scales that no multiplier connects.
Requantize requantize_op(const Node& node, float s_x, const std::vector<float>& s_w, float s_y, OutputRounding rule);
IntegerAdd add_op(const Node& node, const CodeScale& a, const CodeScale& b, float s_y, OutputRounding rule);
IntegerMultiply multiply_op(const Node& node, const CodeScale& a, const CodeScale& b, float s_y, OutputRounding rule);

}  // namespace bitgrad::inference::integer
