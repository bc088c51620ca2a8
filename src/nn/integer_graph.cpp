// The pass from what layers compute in floats and codes to a graph of integers. It starts at the output and asks each
// value for its codes: activations become bounds of the codes, norms become factors and biases of the product before
// them, and values between them have no codes of their own.
#include "bitgrad/nn/integer_graph.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/ops/unary.h"
#include "nn/integer_product.h"
#include "nn/integer_wanted.h"
#include "nn/values.h"

namespace bitgrad::inference {
namespace {

using integer::kLeastCode, integer::kMostCode, integer::Wanted, integer::refuse_integer;

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
    if (moves(node)) return once(v, [&] { return moved(node, coded(node.inputs[0], reader)); });
    refuse_integer(reader, "reads floats without a quantizer, of '", node.layer, "'");
  }

  // A value that is codes in `in_` already.
  Value codes(Value v) {
    const Node& node = in_[v];
    return once(v, [&] {
      if (const auto* const q = std::get_if<Quantize>(&node.operation)) {
        const Value value = made(node.inputs[0], wanted_by(node, *q));
        if (quantizers_ != nullptr) (*quantizers_)[node.layer] = value;
        return value;
      }
      if (!moves(node)) refuse_integer(node, "returns ", node.form.dtype, " of another kind than a quantizer's int8");
      return moved(node, codes(node.inputs[0]));
    });
  }

  static bool moves(const Node& node) {
    return std::holds_alternative<Reshape>(node.operation) || std::holds_alternative<MaxPool>(node.operation);
  }

  template <typename Make>
  Value once(Value v, Make&& make) {
    const auto known = codes_.find(v);
    if (known != codes_.end()) return known->second;
    const Value value = make();
    codes_[v] = value;
    return value;
  }

  // The codes that a quantizer asks for.
  static Wanted wanted_by(const Node& node, const Quantize& q) {
    if (q.dynamic)
      refuse_integer(node, "has no scale before a batch is seen: give it an observer, and train or calibrate it");
    if (node.form.dtype != dtypes::int8) refuse_integer(node, "makes codes of ", node.form.dtype, ", expected int8");
    if (q.scale.size() != 1 || !q.shift.empty() || q.zero.size() > 1)
      refuse_integer(node, "has ", q.shift.empty() ? "several scales" : "real offsets",
                     ", expected one scale and zero point per tensor");
    return {{q.scale[0], q.zero.empty() ? 0 : q.zero[0]}, q.lo, q.hi, &q};
  }

  // ---- how a value of floats gets its codes. Averages keep the scale of their input, whatever is wanted.

  // A value with several readers is made once, and bounded and scaled again for each that asks for other codes.
  Value made(Value v, const Wanted& wanted) {
    if (in_.readers(v) < 2 || std::holds_alternative<Dequantize>(in_[v].operation)) return made_for(v, wanted);
    auto known = made_.find(v);
    if (known == made_.end()) {
      const Wanted shared = integer::wanted_by_all(in_, v, wanted, wanted_by);
      known = made_.emplace(v, std::pair{shared, made_for(v, shared)}).first;
    }
    const auto& [shared, value] = known->second;
    return shared.same_codes(wanted) ? value : rescaled(value, wanted);
  }

  Value made_for(Value v, const Wanted& wanted) {
    const Node& node = in_[v];
    if (std::holds_alternative<Input>(node.operation)) return quantized(node, wanted);
    if (const auto* const op = std::get_if<Pointwise>(&node.operation)) return activation(node, *op, wanted);
    if (std::holds_alternative<Dequantize>(node.operation)) return rescaled(codes(node.inputs[0]), wanted);
    if (const auto* const op = std::get_if<Join>(&node.operation)) return joined(node, *op, wanted);
    if (const auto* const op = std::get_if<AvgPool>(&node.operation)) return averaged(node, *op, wanted);
    if (moves(node)) return moved(node, made(node.inputs[0], wanted));
    return product(v, wanted);
  }

  Value quantized(const Node& node, const Wanted& wanted) {
    Quantize q = *wanted.quantize;
    q.lo = kLeastCode;
    q.hi = kMostCode;
    q.scale = {wanted.scale.scale};
    q.zero = {wanted.scale.zero};
    // Files leave this node to their caller, whose codes are any: narrower bounds stand behind it.
    return rescaled(add(node, std::move(q), {0}, node.form.sample, wanted.scale), wanted);
  }

  Value activation(const Node& node, const Pointwise& op, const Wanted& wanted) {
    constexpr double kAll = 1e30;
    const Value x = node.inputs[0];
    const bool relu = op.op == UnaryOp::relu;
    if (relu || op.op == UnaryOp::hardtanh) return made(x, relu ? wanted.within(0, kAll) : wanted.within(-1, 1));
    return table(node, coded(x, node), wanted, unary_name(op.op),
                 [&](const Tensor& values) { return unary(op.op, Var(values)).value(); });
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
    std::vector<std::pair<Wanted, Value>>& known = rescaled_[v];
    for (const auto& [of, value] : known)
      if (of.same_codes(wanted)) return value;
    Requantize op = integer::requantize_op(node, from.scale, {1.0f}, wanted.scale.scale, rule_);
    op.zero_in = from.zero;
    const Value value = add(node, bounded(std::move(op), wanted), {v}, node.form.sample, wanted.scale);
    known.emplace_back(wanted, value);
    return value;
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
      return add(node, bounded(integer::add_op(node, x[0], x[1], wanted.scale.scale, rule_), wanted), parts,
                 node.form.sample, wanted.scale);
    return add(node, bounded(integer::multiply_op(node, x[0], x[1], wanted.scale.scale, rule_), wanted), parts,
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
    Requantize out = integer::requantize_op(*node, code_scale(out_[x]).scale, scales, wanted.scale.scale, rule_);
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
  // Of values of `in_`: codes, and those of floats with several readers, with what they were made for. Of values of
  // `out_`: their codes in other scales and bounds.
  std::map<Value, Value> codes_;
  std::map<Value, std::pair<Wanted, Value>> made_;
  std::map<Value, std::vector<std::pair<Wanted, Value>>> rescaled_;
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
  const DeviceGuard host(Device::cpu());  // like its tensors
  return Pass(lowered, rule, quantizers).run();
}

}  // namespace bitgrad::inference
