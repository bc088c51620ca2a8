// write_node: dispatches every operation to its writer, and has the writers that need no file of their own.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "bitgrad/base/error.h"
#include "export/onnx_graph.h"

namespace bitgrad::onnx {

namespace {

using inference::Node;
using Fate = ExportedTensor::Fate;

constexpr const char* kOtherFunction = "the client has its own function: off by a few units in the last place";

std::vector<int64_t> list(const auto& a) { return {a.begin(), a.end()}; }

OnnxValue write(GraphBuilder&, const Node&, const inference::Input&) { return {}; }

// Elements from .. to - 1 of an axis.
std::string slice(GraphBuilder& g, const std::string& x, int64_t axis, int64_t from, int64_t to) {
  return g.add("Slice", {x, g.integers({from}, {1}), g.integers({to}, {1}), g.integers({axis}, {1})});
}
// Operations with a number per feature, one after the other.
OnnxValue chain(GraphBuilder& g, const Node& n, std::initializer_list<std::pair<const char*, std::vector<float>>> steps,
                const char* note) {
  OnnxValue y = g.stand(n.inputs[0]);
  for (const auto& [operation, numbers] : steps) y.name = g.add(operation, {y.name, g.per_feature(numbers, y)});
  g.note(note);
  return y;
}

// As in numerics.md, so that rounding is the same.
OnnxValue write(GraphBuilder& g, const Node& n, const inference::Normalize& op) {
  return chain(g, n, {{"Sub", op.mean}, {"Mul", op.inv}, {"Mul", op.gamma}, {"Add", op.beta}}, "norm");
}

// The function of a value, and its line of the report.
std::string function_of(GraphBuilder& g, const OnnxValue& y, UnaryOp op) {
  const std::string& x = y.name;
  const auto rounded = [&](const char* name) { g.note(name, Fate::kRounded, 0x1p-20, kOtherFunction); };
  switch (op) {
    case UnaryOp::relu:
      g.note("Relu");
      return y.type == Type::kInt32 ? g.add("Max", {x, g.integers({0}, {}, Type::kInt32)}) : g.add("Relu", {x});
    case UnaryOp::hardtanh:
      g.note("Clip");
      return g.add("Clip", {x, g.scalar(-1.0f), g.scalar(1.0f)});
    case UnaryOp::relu2: {
      g.note("Relu, Mul");
      const std::string r = g.add("Relu", {x});
      return g.add("Mul", {r, r});
    }
    case UnaryOp::tanh:
      rounded("Tanh");
      return g.add("Tanh", {x});
    case UnaryOp::sigmoid:
      rounded("Sigmoid");
      return g.add("Sigmoid", {x});
    case UnaryOp::silu:
      rounded("Mul, Sigmoid");
      return g.add("Mul", {x, g.add("Sigmoid", {x})});
    case UnaryOp::gelu:
    case UnaryOp::gelu_tanh:
      rounded("Gelu");
      return g.add("Gelu", {x}, {{"approximate", std::string(op == UnaryOp::gelu ? "none" : "tanh")}});
    case UnaryOp::kCount:
      break;
  }
  g.refuse("function", "not known");
  return x;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Pointwise& op) {
  OnnxValue y = g.stand(n.inputs[0]);
  y.name = function_of(g, y, op.op);
  return y;
}

// x by the root mean square of its last axis.
std::string over_rms(GraphBuilder& g, const std::string& x, float eps) {
  const std::string squares =
      g.add("ReduceMean", {g.add("Mul", {x, x}), g.integers({-1}, {1})}, {{"keepdims", int64_t{1}}});
  return g.add("Div", {x, g.add("Sqrt", {g.add("Add", {squares, g.scalar(eps)})})});
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Times& op) {
  OnnxValue y = g.stand(n.inputs[0]);
  y.name = g.add("Mul", {y.name, g.scalar(op.factor)});
  g.note("Mul");
  return y;
}

// Rows are along the last axis, also of images.
OnnxValue write(GraphBuilder& g, const Node& n, const inference::RowNorm& op) {
  OnnxValue y = g.channels_last(n.inputs[0]);
  const std::string x = y.name;
  if (op.centered && op.gamma.size() == 1) {  // ONNX Runtime 1.22 and 1.23 refuse a LayerNormalization of one number
    y.name = g.add("Sub", {x, x});
    if (!op.beta.empty()) y.name = g.add("Add", {y.name, g.per_feature(op.beta, y)});
    g.note("norm of one number");
    return y;
  }
  if (op.centered) {
    std::vector<std::string> inputs{x, g.numbers(op.gamma, {static_cast<int64_t>(op.gamma.size())})};
    if (!op.beta.empty()) inputs.push_back(g.numbers(op.beta, {static_cast<int64_t>(op.beta.size())}));
    y.name = g.add("LayerNormalization", inputs, {{"axis", int64_t{-1}}, {"epsilon", op.eps}});
  } else {
    y.name = g.add("Mul", {over_rms(g, x, op.eps), g.per_feature(op.gamma, y)});
  }
  g.note(op.centered ? "LayerNormalization" : "ReduceMean, Sqrt, Div", Fate::kRounded,
         (static_cast<double>(op.gamma.size()) + 8) * 0x1p-23,
         "sums of floats, in an order of the client's: off by at most this part of the root mean square");
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Gate& op) {
  const OnnxValue x = g.channels_last(n.inputs[0]);
  const int64_t half = n.form.features();
  const auto part = [&](int64_t from) { return slice(g, x.name, -1, from, from + half); };
  OnnxValue gate = x, y = x;
  gate.name = part(0);
  y.name = g.add("Mul", {function_of(g, gate, op.op), part(half)});
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::MaxPool& op) {
  OnnxValue y = g.channels_first(n.inputs[0]);
  y.name = g.add("MaxPool", {y.name}, pool_attributes(op.options));
  g.note("MaxPool");
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::AvgPool& op) {
  OnnxValue y = g.channels_first(n.inputs[0]);
  const Shape& in = g.source()[n.inputs[0]].form.sample;
  const int64_t count = op.whole_image ? in[0] * in[1] : op.options.size[0] * op.options.size[1];
  if (op.whole_image) {
    y.name = g.add("ReduceMean", {y.name, g.integers({2, 3}, {2})}, {{"keepdims", int64_t{0}}});
    y.channels_first = false;
  } else {
    y.name = g.add("AveragePool", {y.name}, pool_attributes(op.options));
  }
  g.note(op.whole_image ? "ReduceMean" : "AveragePool", Fate::kRounded, (static_cast<double>(count) + 2) * 0x1p-23,
         "sums of floats, in an order of the client's: off by at most this part of the mean of magnitudes");
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Shortcut& op) {
  OnnxValue y = g.channels_first(n.inputs[0]);
  const Shape& in = g.source()[n.inputs[0]].form.sample;
  if (op.stride[0] > 1 || op.stride[1] > 1) {
    const int64_t end = int64_t{1} << 31;
    y.name = g.add("Slice", {y.name, g.integers({0, 0}, {2}), g.integers({end, end}, {2}), g.integers({2, 3}, {2}),
                             g.integers(list(op.stride), {2})});
  }
  const int64_t more = op.out - in.cols(), before = more / 2;
  if (more > 0)
    y.name = g.add("Pad", {y.name, g.integers({0, before, 0, 0, 0, more - before, 0, 0}, {8}), g.scalar(0.0f)});
  g.note("Slice, Pad");
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Prelu& op) {
  return chain(g, n, {{"PRelu", op.slope}}, "PRelu");
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Shift& op) {
  return chain(g, n, {{"Add", op.shift}}, "Add");
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Reshape&) {
  OnnxValue y = g.channels_last(n.inputs[0]);
  std::vector<int64_t> dims{0};  // keep the batch
  for (const int64_t d : n.form.sample.dims()) dims.push_back(d);
  y.name = g.add("Reshape", {y.name, g.integers(dims, {static_cast<int64_t>(dims.size())})});
  g.note("Reshape");
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& n, const inference::Join& op) {
  const bool first = g.stand(n.inputs[0]).channels_first;
  std::vector<std::string> parts;
  for (const inference::Value v : n.inputs) parts.push_back(g.in_order(v, first).name);
  OnnxValue y{parts[0], Type::kFloat, first, "", ""};
  if (op.kind == inference::JoinKind::kConcat) {
    y.name = g.add("Concat", parts, {{"axis", first ? int64_t{1} : int64_t{-1}}});
  } else {
    for (size_t i = 1; i < parts.size(); ++i)
      y.name = g.add(op.kind == inference::JoinKind::kAdd ? "Add" : "Mul", {y.name, parts[i]});
  }
  g.note("join");
  return y;
}

// The operations of integer graphs, which onnx_integer.cpp writes.
template <typename Operation>
OnnxValue write(GraphBuilder& g, const Node&, const Operation&) {
  g.refuse("integer layer", "this format has no networks of integers (compute: integer)");
  return {"refused", Type::kFloat, false, "", ""};
}

}  // namespace

NodeAttributes pool_attributes(const PoolOptions& o) {
  return {{"kernel_shape", list(o.size)}, {"strides", list(o.stride)}, {"pads", list(o.padding)}};
}

OnnxValue write_node(GraphBuilder& g, const Node& node) {
  return std::visit([&](const auto& op) { return write(g, node, op); }, node.operation);
}

// Sequences: rows of tables, rotary positions and causal attention, from operators that every opset has.

namespace {

// The rows of a table for the positions of a sequence.
std::string first_rows(GraphBuilder& g, const std::string& table, inference::Value sequence) {
  return g.add("Slice", {table, g.integers({0}, {1}), g.positions(sequence), g.integers({0}, {1})});
}
// 0 keeps an axis, -1 takes what is left.
std::string reshape(GraphBuilder& g, const std::string& x, const std::vector<int64_t>& dims) {
  return g.add("Reshape", {x, g.integers(dims, {std::ssize(dims)})});
}
std::string transpose(GraphBuilder& g, const std::string& x, std::vector<int64_t> order) {
  return g.add("Transpose", {x}, {{"perm", std::move(order)}});
}

// [T,T]: 0 for the keys that a row sees, -Inf for those behind it, and for those before its window (0: none).
std::string causal_mask(GraphBuilder& g, inference::Value sequence, int64_t window) {
  return g.once(concat("mask ", g.source()[sequence].form.sample[0], ' ', window), [&] {
    const std::string t = g.positions(sequence), square = g.add("Concat", {t, t}, {{"axis", int64_t{0}}});
    const std::string hidden = g.add("Expand", {g.scalar(-std::numeric_limits<float>::infinity()), square});
    const std::string behind = g.add("Trilu", {hidden, g.integers({1}, {})}, {{"upper", int64_t{1}}});
    if (window == 0) return behind;
    return g.add("Add", {behind, g.add("Trilu", {hidden, g.integers({-window}, {})}, {{"upper", int64_t{0}}})});
  });
}

// Cosines (part 0) or sines (part 1) of the positions, in `dims` behind the first axis.
std::string rope_part(GraphBuilder& g, inference::Value sequence, const RopeOptions& o, int64_t part,
                      std::vector<int64_t> dims) {
  const int64_t positions = g.source()[sequence].form.sample[0], half = o.dim / 2;
  const std::string key = concat("rope ", part, ' ', positions, ' ', o.dim, ' ', o.base, ' ', o.interleaved, ' ',
                                 o.factor, ' ', o.low, ' ', o.high, ' ', o.original);
  return g.once(key, [&] {
    const std::vector<float> table = rope_table(positions, o).to_vector();
    std::vector<float> numbers;
    for (auto row = table.begin(); row != table.end(); row += o.dim)
      numbers.insert(numbers.end(), row + part * half, row + (part + 1) * half);
    dims.insert(dims.begin(), positions);
    return first_rows(g, g.numbers(numbers, dims), sequence);
  });
}

}  // namespace

bool any_length(const inference::Graph& graph) {
  const Form& ids = graph[0].form;
  return ids.dtype != dtypes::fp32 && ids.sample.rank() == 1 &&
         std::all_of(graph.nodes().begin() + 1, graph.nodes().end(), [&](const Node& node) {
           const Shape& s = node.form.sample;
           return s.rank() == 2 && s[0] == ids.sample[0] && !std::holds_alternative<inference::Reshape>(node.operation);
         });
}

OnnxValue write(GraphBuilder& g, const Node& node, const inference::Embedding& op) {
  std::string form;
  const std::string table = write_table(g, op.table, form);
  OnnxValue y{g.add("Gather", {table, g.stand(node.inputs[0]).name}), Type::kFloat, false, "", ""};
  g.note(concat("Gather, table ", form));
  return y;
}

OnnxValue write(GraphBuilder& g, const Node& node, const inference::Positions& op) {
  std::string form;
  OnnxValue y = g.stand(node.inputs[0]);
  y.name = g.add("Add", {y.name, first_rows(g, write_table(g, op.table, form), node.inputs[0])});
  g.note("Slice, Add");
  return y;
}

// On [N,T,heads,dim], or [N,T,heads*dim] where gamma is of all heads.
OnnxValue write(GraphBuilder& g, const Node& node, const inference::QkNorm& op) {
  OnnxValue y = g.stand(node.inputs[0]);
  const int64_t dim = node.form.features() / (op.heads + 2 * op.kv_heads), keys = op.heads + op.kv_heads;
  const auto normed = [&](int64_t from, int64_t heads, const std::vector<float>& gamma) {
    const std::string x = slice(g, y.name, -1, from * dim, (from + heads) * dim);
    const auto features = static_cast<int64_t>(gamma.size());
    const std::string rows = features == heads * dim ? x : reshape(g, x, {0, 0, heads, dim});
    const std::string z = g.add("Mul", {over_rms(g, rows, op.eps), g.numbers(gamma, {features})});
    return features == heads * dim ? z : reshape(g, z, {0, 0, heads * dim});
  };
  const std::string q = normed(0, op.heads, op.q), k = normed(op.heads, op.kv_heads, op.k),
                    v = slice(g, y.name, -1, keys * dim, node.form.features());
  y.name = g.add("Concat", {q, k, v}, {{"axis", int64_t{-1}}});
  g.note("ReduceMean, Sqrt, Div", Fate::kRounded,
         (static_cast<double>(std::max(op.q.size(), op.k.size())) + 8) * 0x1p-23,
         "sums of floats, in an order of the client's: off by at most this part of the root mean square");
  return y;
}

// The operations of numerics.md one by one, on [N,T,heads,2,dim/2], or [N,T,heads,dim/2,2] for neighbours.
OnnxValue write(GraphBuilder& g, const Node& node, const inference::Rope& op) {
  const RopeOptions& o = op.options;
  OnnxValue y = g.stand(node.inputs[0]);
  const int64_t half = o.dim / 2, turned = op.heads * o.dim, axis = o.interleaved ? 4 : 3;
  const std::vector<int64_t> dims = o.interleaved ? std::vector<int64_t>{1, half, 1} : std::vector<int64_t>{1, 1, half};
  const std::string cosine = rope_part(g, node.inputs[0], o, 0, dims), sine = rope_part(g, node.inputs[0], o, 1, dims);
  const std::string pairs =
      reshape(g, slice(g, y.name, -1, 0, turned), {0, 0, op.heads, o.interleaved ? half : 2, o.interleaved ? 2 : half});
  const std::string a = slice(g, pairs, axis, 0, 1), b = slice(g, pairs, axis, 1, 2);
  const auto mul = [&](const std::string& x, const std::string& part) { return g.add("Mul", {x, part}); };
  const std::string first = g.add("Sub", {mul(a, cosine), mul(b, sine)}),
                    second = g.add("Add", {mul(b, cosine), mul(a, sine)});
  const std::string rotated = reshape(g, g.add("Concat", {first, second}, {{"axis", axis}}), {0, 0, turned});
  y.name = g.add("Concat", {rotated, slice(g, y.name, -1, turned, node.form.features())}, {{"axis", int64_t{-1}}});
  g.note("rotary positions");
  return y;
}

// Heads of q in groups of those that share a head of k and v: [N, kv_heads, group, T, dim].
OnnxValue write(GraphBuilder& g, const Node& node, const inference::Attention& op) {
  const AttentionOptions& o = op.options;
  const int64_t shared = o.kv_heads, dim = node.form.features() / o.heads;
  OnnxValue y = g.stand(node.inputs[0]);
  const auto part = [&](int64_t from, int64_t heads, std::vector<int64_t> order) {
    const std::string x = slice(g, y.name, -1, from * dim, (from + heads) * dim);
    return transpose(g, reshape(g, x, {0, 0, shared, heads / shared, dim}), std::move(order));
  };
  const std::string q = part(0, o.heads, {0, 2, 3, 1, 4}), k = part(o.heads, shared, {0, 2, 3, 4, 1}),
                    v = part(o.heads + shared, shared, {0, 2, 3, 1, 4});
  const float scale = o.scale > 0 ? o.scale : 1.0f / std::sqrt(static_cast<float>(dim));
  std::string scores = g.add("Mul", {g.add("MatMul", {q, k}), g.scalar(scale)});
  if (o.softcap > 0)
    scores = g.add("Mul", {g.add("Tanh", {g.add("Div", {scores, g.scalar(o.softcap)})}), g.scalar(o.softcap)});
  const std::string weights =
      g.add("Softmax", {g.add("Add", {scores, causal_mask(g, node.inputs[0], o.window)})}, {{"axis", int64_t{-1}}});
  y.name = reshape(g, transpose(g, g.add("MatMul", {weights, v}), {0, 3, 1, 2, 4}), {0, 0, node.form.features()});
  const int64_t keys = g.source()[node.inputs[0]].form.sample[0];
  g.note("MatMul, Softmax, MatMul", Fate::kRounded, static_cast<double>(keys + dim + 16) * 0x1p-23,
         "sums of floats and exponentials, in an order of the client's: off by at most this part of the largest value, "
         "times the sum of magnitudes behind a score where that is above 1");
  return y;
}

}  // namespace bitgrad::onnx
