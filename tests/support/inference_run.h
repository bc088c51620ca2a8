// Runs a lowered model (nn/inference.h) node by node with the library's ops.
#pragma once

#include <vector>

#include "bitgrad/nn/inference.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"

namespace bitgrad::test {

class InferenceRun {
 public:
  InferenceRun(const inference::Graph& graph, const Tensor& x) : graph_(graph) {
    for (const inference::Node& node : graph.nodes())
      values_.push_back(
          std::visit([&](const auto& op) { return node.inputs.empty() ? Var(x) : run(op, node); }, node.operation));
  }
  const Tensor& value(size_t node) const { return values_.at(node).value(); }
  const Tensor& output() const { return values_.back().value(); }

 private:
  const Var& in(const inference::Node& node, size_t i = 0) const {
    return values_.at(static_cast<size_t>(node.inputs.at(i)));
  }
  static Shape batch_shape(const Var& x, const inference::Node& node) {
    std::vector<int64_t> dims{x.shape()[0]};
    for (const int64_t d : node.form.sample.dims()) dims.push_back(d);
    return Shape(dims);
  }
  static Var vector_of(const std::vector<float>& numbers) {
    return Var(Tensor::from(numbers, {static_cast<int64_t>(numbers.size())}));
  }

  Var run(const inference::Input&, const inference::Node&) const { return {}; }
  // Operations of integer graphs, which IntegerNetwork runs.
  template <typename Operation>
  Var run(const Operation&, const inference::Node& node) const {
    fail("inference_run", node.layer, " is an operation of integers");
  }
  Var run(const inference::Quantize& op, const inference::Node& node) const {
    const Tensor x = in(node).value();
    return Var(op.dynamic ? quantize_dynamic(op.spec, x) : quantize_tensor(op.spec, x, node.params));
  }
  Var run(const inference::Requantize& op, const inference::Node& node) const {
    return requantize(in(node), op.spec.dtype, node.params);
  }
  Var run(const inference::Dequantize&, const inference::Node& node) const { return dequantize(in(node)); }
  Var run(const inference::Product& op, const inference::Node& node) const {
    const Var w(op.weight);
    if (!op.integer_out) {
      const Var bias = op.bias.defined() ? Var(op.bias) : Var();
      return op.conv ? conv2d(in(node), w, bias, *op.conv) : linear(in(node), w, bias);
    }
    const Tensor y = (op.conv ? integer_conv2d(in(node), w, {}, *op.conv) : integer_linear(in(node), w)).value();
    const int64_t o = y.cols();
    for (int64_t i = 0; op.bias.defined() && i < y.numel(); ++i)
      y.as<int32_t>()[i] = static_cast<int32_t>(
          std::clamp<int64_t>(int64_t{y.as<int32_t>()[i]} + op.bias.as<int32_t>()[i % o], INT32_MIN, INT32_MAX));
    return Var(y);
  }
  Var run(const inference::Normalize& op, const inference::Node& node) const {
    const Tensor x = in(node).value();
    const Tensor y = Tensor::empty(x.shape(), dtypes::fp32);
    const auto f = static_cast<int64_t>(op.mean.size());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto j = static_cast<size_t>(i % f);
      y.as<float>()[i] = ((x.as<float>()[i] - op.mean[j]) * op.inv[j]) * op.gamma[j] + op.beta[j];
    }
    return Var(y);
  }
  Var run(const inference::Pointwise& op, const inference::Node& node) const {
    return in(node).dtype() == dtypes::int32 ? integer_relu(in(node)) : unary(op.op, in(node));
  }
  Var run(const inference::MaxPool& op, const inference::Node& node) const { return max_pool(in(node), op.options); }
  Var run(const inference::AvgPool& op, const inference::Node& node) const {
    return op.whole_image ? global_avg_pool(in(node)) : avg_pool(in(node), op.options);
  }
  Var run(const inference::Shortcut& op, const inference::Node& node) const {
    return shortcut_a(in(node), op.out, op.stride);
  }
  Var run(const inference::Prelu& op, const inference::Node& node) const {
    return prelu(in(node), vector_of(op.slope));
  }
  Var run(const inference::Shift& op, const inference::Node& node) const {
    return shift(in(node), vector_of(op.shift));
  }
  Var run(const inference::RowNorm& op, const inference::Node& node) const {
    const Var gamma = vector_of(op.gamma), beta = op.beta.empty() ? Var() : vector_of(op.beta);
    return op.centered ? layer_norm(in(node), gamma, beta, op.eps) : rms_norm(in(node), gamma, op.eps);
  }
  Var run(const inference::Gate& op, const inference::Node& node) const { return gated(op.op, in(node)); }
  Var run(const inference::Embedding& op, const inference::Node& node) const {
    return reshape(embedding(in(node), Var(op.table)), batch_shape(in(node), node));
  }
  Var run(const inference::Positions& op, const inference::Node& node) const {
    return add(in(node), slice(Var(op.table), 0, 0, in(node).shape()[1]));
  }
  Var run(const inference::Times& op, const inference::Node& node) const { return times(in(node), op.factor); }
  Var run(const inference::QkNorm& op, const inference::Node& node) const {
    return qk_norm(in(node), vector_of(op.q), vector_of(op.k), op.heads, op.kv_heads, op.eps);
  }
  Var run(const inference::Rope& op, const inference::Node& node) const {
    return rope(in(node), rope_table(in(node).shape()[1], op.options), op.options, 0, op.heads);
  }
  Var run(const inference::Attention& op, const inference::Node& node) const { return attention(in(node), op.options); }
  Var run(const inference::Reshape&, const inference::Node& node) const {
    const Var& x = in(node);
    return node.form.sample.rank() == 1 && x.shape().rank() > 2 ? flatten(x) : reshape(x, batch_shape(x, node));
  }
  Var run(const inference::Join& op, const inference::Node& node) const {
    std::vector<Var> parts;
    for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(in(node, i));
    if (op.kind == inference::JoinKind::kConcat) return concatenate(parts, -1);
    Var y = parts[0];
    for (size_t i = 1; i < parts.size(); ++i)
      y = op.kind == inference::JoinKind::kAdd ? add(y, parts[i]) : mul(y, parts[i]);
    return y;
  }

  const inference::Graph& graph_;
  std::vector<Var> values_;
};

}  // namespace bitgrad::test
