// The pass from what layers compute in floats and codes to a graph of integers. It starts at the output and asks each
// value for its codes: activations become bounds of the codes, norms become factors and biases of the product before
// them, and values between them have no codes of their own.
#include "bitgrad/nn/integer_graph.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/ops/unary.h"
#include "nn/integer_product.h"
#include "nn/values.h"

namespace bitgrad::inference {
namespace {

using integer::refuse_integer;

constexpr int64_t kLeastCode = -128, kMostCode = 127;

// The codes that a reader asks for: scale, bounds, and how an input of the model becomes codes.
struct Wanted {
  CodeScale scale = {};
  int64_t lo = kLeastCode, hi = kMostCode;
  const Quantize* quantize = nullptr;

  // Of x where the codes are those of f(x), f an increasing function that is constant outside [low, high].
  Wanted within(double low, double high) const {
    Wanted w = *this;
    w.lo = std::max<int64_t>(lo, scale.zero + std::llrint(std::max(low / scale.scale, -512.0)));
    w.hi = std::min<int64_t>(hi, scale.zero + std::llrint(std::min(high / scale.scale, 512.0)));
    return w;
  }
};

std::shared_ptr<const QuantParams> params_of(const CodeScale& scale) {
  QuantParams params;
  params.scheme = "affine";
  params.scale = std::make_shared<const Tensor>(Tensor::from({scale.scale}, {1}, dtypes::fp32, MemoryKind::kBuffer));
  const double zero[] = {static_cast<double>(scale.zero)};
  params.zero = std::make_shared<const Tensor>(Tensor::from_elements({1}, dtypes::int32, zero, MemoryKind::kBuffer));
  return std::make_shared<const QuantParams>(std::move(params));
}

class Pass {
 public:
  Pass(const Graph& in, OutputRounding rule, std::map<std::string, Value>* quantizers)
      : in_(in), rule_(rule), quantizers_(quantizers), out_(in[0].form) {}

  Graph run() {
    const Value codes = coded(in_.output(), in_[in_.output()]);
    Form form = out_[codes].form;
    form.dtype = dtypes::fp32;
    form.scales.reset();
    detail::add_node(out_, in_[in_.output()].layer, Dequantize{}, codes, form);
    return std::move(out_);
  }

 private:
  // ---- values in codes

  // The codes that stand for a value of floats; `reader` needs them.
  Value coded(Value v, const Node& reader) {
    const Node& node = in_[v];
    if (node.form.dtype == dtypes::int8) return codes(v);
    if (std::holds_alternative<Dequantize>(node.operation)) return codes(node.inputs[0]);
    if (std::holds_alternative<Reshape>(node.operation) || std::holds_alternative<MaxPool>(node.operation))
      return moved(node, coded(node.inputs[0], reader));
    refuse_integer(reader, "reads floats without a quantizer, of '", node.layer, "'");
  }

  // A value that is codes in `in_` already.
  Value codes(Value v) {
    const Node& node = in_[v];
    if (const auto* const q = std::get_if<Quantize>(&node.operation)) {
      const Value made = offered(node, *q);
      if (quantizers_ != nullptr) (*quantizers_)[node.layer] = made;
      return made;
    }
    const bool moves =
        std::holds_alternative<Reshape>(node.operation) || std::holds_alternative<MaxPool>(node.operation);
    if (!moves) refuse_integer(node, "returns ", node.form.dtype, " of another kind than a quantizer's int8");
    return moved(node, codes(node.inputs[0]));
  }

  // What quantizer `q` reads, in its codes. A value that has codes already is scaled again.
  Value offered(const Node& node, const Quantize& q) {
    if (q.dynamic)
      refuse_integer(node, "has no scale before a batch is seen: give it an observer, and train or calibrate it");
    if (node.form.dtype != dtypes::int8) refuse_integer(node, "makes codes of ", node.form.dtype, ", expected int8");
    if (q.scale.size() != 1 || !q.shift.empty() || q.zero.size() > 1)
      refuse_integer(node, "has ", q.shift.empty() ? "several scales" : "real offsets",
                     ", expected one scale and zero point per tensor");
    Wanted wanted{{q.scale[0], q.zero.empty() ? 0 : q.zero[0]}, q.lo, q.hi, &q};
    const Value source = node.inputs[0];
    std::vector<std::pair<CodeScale, Value>>& known = made_[source];
    for (const auto& [scale, value] : known)
      if (scale == wanted.scale) return value;
    const Value value = known.empty() ? made(source, wanted) : rescaled(known[0].second, wanted);
    made_[source].emplace_back(wanted.scale, value);
    return value;
  }

  // ---- how a value of floats gets its codes. Averages keep the scale of their input, whatever is wanted.

  Value made(Value v, const Wanted& wanted) {
    const Node& node = in_[v];
    if (std::holds_alternative<Input>(node.operation)) return quantized(node, wanted);
    if (const auto* const op = std::get_if<Pointwise>(&node.operation)) return activation(node, *op, wanted);
    if (std::holds_alternative<Dequantize>(node.operation)) return rescaled(codes(node.inputs[0]), wanted);
    if (const auto* const op = std::get_if<Join>(&node.operation)) return joined(node, *op, wanted);
    if (const auto* const op = std::get_if<AvgPool>(&node.operation)) return averaged(node, *op, wanted);
    if (std::holds_alternative<Reshape>(node.operation) || std::holds_alternative<MaxPool>(node.operation))
      return moved(node, made(node.inputs[0], wanted));
    return product(v, wanted);
  }

  Value quantized(const Node& node, const Wanted& wanted) {
    Quantize q = *wanted.quantize;
    q.lo = kLeastCode;
    q.hi = kMostCode;
    // Files leave this node to their caller, whose codes are any: narrower bounds stand behind it.
    return rescaled(add(node, std::move(q), {0}, node.form.sample, wanted.scale), wanted);
  }

  Value activation(const Node& node, const Pointwise& op, const Wanted& wanted) {
    constexpr double kAll = 1e30;
    const Value x = node.inputs[0];
    const bool relu = op.op == UnaryOp::relu;
    if (relu || op.op == UnaryOp::hardtanh) {
      const Wanted within = relu ? wanted.within(0, kAll) : wanted.within(-1, 1);
      const std::optional<Value> shared = quantizer_of(x);
      return shared ? rescaled(codes(*shared), within) : made(x, within);
    }
    return table(node, coded(x, node), wanted, unary_name(op.op),
                 [&](const Tensor& values) { return unary(op.op, Var(values)).value(); });
  }

  // The first quantizer that reads a value: whoever else reads the value reads its codes, so that they are made once.
  std::optional<Value> quantizer_of(Value v) const {
    for (Value reader = v + 1; reader <= in_.output(); ++reader)
      if (std::holds_alternative<Quantize>(in_[reader].operation) && in_[reader].inputs[0] == v) return reader;
    return std::nullopt;
  }

  // The table of a function of one element.
  template <typename F>
  Value table(const Node& node, Value x, const Wanted& wanted, std::string_view name, F&& function) {
    const CodeScale scale = code_scale(out_[x]);
    constexpr int kCodes = 256, kLeast = -128;
    std::vector<float> values;
    for (int i = 0; i < kCodes; ++i)
      values.push_back((static_cast<float>(i + kLeast) - static_cast<float>(scale.zero)) * scale.scale);
    const NoGrad off;
    const std::vector<float> y = function(Tensor::from(values, {1, kCodes})).to_vector();
    Table op;
    op.function = name;
    const float inverse = 1.0f / wanted.scale.scale;
    for (size_t i = 0; i < y.size(); ++i) {
      const float code = std::rint(y[i] * inverse) + static_cast<float>(wanted.scale.zero);
      op.codes[i] = static_cast<int8_t>(std::clamp(code, static_cast<float>(wanted.lo), static_cast<float>(wanted.hi)));
    }
    return add(node, std::move(op), {x}, node.form.sample, wanted.scale);
  }

  Value rescaled(Value v, const Wanted& wanted) {
    const Node& node = out_[v];
    const CodeScale from = code_scale(node);
    if (from == wanted.scale && wanted.lo <= kLeastCode && wanted.hi >= kMostCode) return v;
    Requantize op = integer::requantize_op(from.scale, {1.0f}, wanted.scale.scale, rule_);
    op.zero_in = from.zero;
    return add(node, bounded(std::move(op), wanted), {v}, node.form.sample, wanted.scale);
  }

  Value joined(const Node& node, const Join& op, const Wanted& wanted) {
    std::vector<Value> parts;
    if (op.kind == JoinKind::kConcat) {
      for (const Value v : node.inputs) parts.push_back(exactly(v, node, wanted));
      return add(node, op, parts, node.form.sample, wanted.scale);
    }
    if (node.inputs.size() != 2) refuse_integer(node, "joins ", node.inputs.size(), " values, expected two");
    for (const Value v : node.inputs) parts.push_back(coded(v, node));
    const CodeScale x[] = {code_scale(out_[parts[0]]), code_scale(out_[parts[1]])};
    if (op.kind == JoinKind::kAdd)
      return add(node, bounded(integer::add_op(x[0], x[1], wanted.scale.scale, rule_), wanted), parts, node.form.sample,
                 wanted.scale);
    return add(node, bounded(integer::multiply_op(x[0], x[1], wanted.scale.scale, rule_), wanted), parts,
               node.form.sample, wanted.scale);
  }

  // Parts of a concatenation have one scale.
  Value exactly(Value v, const Node& reader, const Wanted& wanted) {
    const Value value = in_[v].form.dtype == dtypes::int8 ? coded(v, reader) : made(v, wanted);
    return code_scale(out_[value]) == wanted.scale ? value : rescaled(value, wanted);
  }

  // Bounds are of the codes that were wanted; in the scale of the input they are others.
  Value averaged(const Node& node, const AvgPool& op, const Wanted& wanted) {
    const Value x = coded(node.inputs[0], node);
    const CodeScale scale = code_scale(out_[x]);
    const auto bound = [&](int64_t code) {
      const double value = static_cast<double>(wanted.scale.scale) * static_cast<double>(code - wanted.scale.zero);
      return std::clamp<int64_t>(std::llrint(std::clamp(value / scale.scale, -512.0, 512.0)) + scale.zero, -128, 127);
    };
    IntegerAvgPool pool{op.options, op.whole_image, -128, 127};
    if (wanted.lo > wanted.quantize->lo) pool.lo = bound(wanted.lo);
    if (wanted.hi < wanted.quantize->hi) pool.hi = bound(wanted.hi);
    return add(node, pool, {x}, node.form.sample, scale);
  }

  // A product with the norms, factors and shifts behind it.
  Value product(Value v, const Wanted& wanted) {
    integer::ChannelLine line;
    const Node* node = &in_[v];
    while (line.take(*node)) node = &in_[node->inputs[0]];
    const auto* const op = std::get_if<Product>(&node->operation);
    if (op == nullptr)
      refuse_integer(*node, node == &in_[v]
                                ? "has no integer form"
                                : concat("is before '", in_[v].layer, "', which is folded into a product alone"));
    if (in_[node->inputs[0]].form.dtype != dtypes::int8)
      refuse_integer(*node, "multiplies ", in_[node->inputs[0]].form.dtype, ", expected inputs of int8");
    const Value x = codes(node->inputs[0]);
    integer::FoldedProduct folded = integer::fold(*node, *op, line, code_scale(out_[x]), wanted.scale.scale);
    const std::vector<float> scales = folded.scales;
    Node sum;
    sum.layer = node->layer;
    sum.inputs = {x};
    sum.form = node->form;
    sum.form.dtype = dtypes::int32;
    sum.form.scales = ScaleForm{Granularity::channel(1), false, false};
    sum.params = integer::sum_params(code_scale(out_[x]).scale, scales);
    sum.operation = std::move(folded.product);
    const Value sums = out_.add(std::move(sum));
    Requantize out = integer::requantize_op(code_scale(out_[x]).scale, scales, wanted.scale.scale, rule_);
    return add(in_[v], bounded(std::move(out), wanted), {sums}, in_[v].form.sample, wanted.scale);
  }

  // ---- nodes

  template <typename Op>
  static Op bounded(Op op, const Wanted& wanted) {
    op.zero = wanted.scale.zero;
    op.lo = wanted.lo;
    op.hi = wanted.hi;
    return op;
  }

  Value moved(const Node& node, Value x) {
    const CodeScale scale = code_scale(out_[x]);
    return add(node, node.operation, {x}, node.form.sample, scale);
  }

  Value add(const Node& like, Operation operation, const std::vector<Value>& inputs, const Shape& sample,
            const CodeScale& scale) {
    Node node;
    node.layer = like.layer;
    node.operation = std::move(operation);
    node.inputs = inputs;
    node.form = like.form;
    node.form.sample = sample;
    node.form.dtype = dtypes::int8;
    node.form.scales = ScaleForm{Granularity::tensor(), true, false};
    node.params = params_of(scale);
    return out_.add(std::move(node));
  }

  const Graph& in_;
  const OutputRounding rule_;
  std::map<std::string, Value>* const quantizers_;
  Graph out_;
  std::map<Value, std::vector<std::pair<CodeScale, Value>>> made_;
};

}  // namespace

CodeScale code_scale(const Node& node) {
  const QuantParams* const params = node.params.get();
  require(node.form.dtype == dtypes::int8 && params != nullptr && params->scale != nullptr &&
              params->scale->numel() == 1 && params->offset == nullptr,
          "integer", "'", node.layer, "' returns ", node.form.dtype, ", expected int8 codes with one scale");
  return {params->scale->to_vector()[0], params->zero ? static_cast<int32_t>(params->zero->elements()[0]) : int32_t{0}};
}

Graph integer_graph(const Graph& lowered, OutputRounding rule, std::map<std::string, Value>* quantizers) {
  return Pass(lowered, rule, quantizers).run();
}

}  // namespace bitgrad::inference
