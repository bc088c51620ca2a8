#include "export/onnx_integer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/integer_graph.h"
#include "export/targets.h"

namespace bitgrad::onnx {
namespace {

using inference::CodeScale;
using inference::IntegerAdd;
using inference::IntegerAvgPool;
using inference::IntegerMultiply;
using inference::Node;
using inference::Product;
using inference::Requantize;
using inference::Value;
using Fate = ExportedTensor::Fate;

constexpr int64_t kLeast = -128, kMost = 127;

Value value_of(const GraphBuilder& g, const Node& node) {
  return static_cast<Value>(&node - g.source().nodes().data());
}
CodeScale scale_of(const GraphBuilder& g, Value v) { return inference::code_scale(g.source()[v]); }

OnnxValue codes(std::string name, bool channels_first) {
  return {std::move(name), Type::kUint8, channels_first, "", ""};
}

std::string zero_point(GraphBuilder& g, Value v) {
  return g.integers({scale_of(g, v).zero + kShift}, {}, Type::kUint8);
}
std::string by_scale(GraphBuilder& g, const char* operation, const std::string& x, Value v) {
  return g.add(operation, {x, g.scalar(scale_of(g, v).scale), zero_point(g, v)});
}
std::string values(GraphBuilder& g, const std::string& x, Value v) { return by_scale(g, "DequantizeLinear", x, v); }
std::string quantized(GraphBuilder& g, const std::string& x, Value v) { return by_scale(g, "QuantizeLinear", x, v); }

// Codes within the bounds of an activation. On codes, not on floats: ONNX Runtime computes a product in integers only
// if QuantizeLinear reads it.
std::string bounded(GraphBuilder& g, const std::string& x, int64_t lo, int64_t hi) {
  if (lo <= kLeast && hi >= kMost) return x;
  return g.add("Clip", {x, g.integers({lo + kShift}, {}, Type::kUint8), g.integers({hi + kShift}, {}, Type::kUint8)});
}

std::string reshaped(GraphBuilder& g, const std::string& x, const std::vector<int64_t>& dims) {
  return g.add("Reshape", {x, g.integers(dims, {std::ssize(dims)})});
}
std::vector<int64_t> any_samples(const Shape& sample) {
  std::vector<int64_t> dims{-1};
  for (const int64_t d : sample.dims()) dims.push_back(d);
  return dims;
}

// ---- products

// What a product and its output stage are in the file.
struct Stage {
  const Node& sum;
  const Product& op;
  const Node& node;
  const Requantize& stage;
  Value in = 0, out = 0;
  std::vector<float> scale = {};  // of the weight, per output
  bool shifted = false;           // the codes of the weight are written as UINT8, plus 128
};

// The kernels of x86 without VNNI add pairs of products of UINT8 and INT8 in 16 bits, which saturate. With weights of
// UINT8 they do not.
bool could_saturate(const Tensor& w) {
  constexpr int64_t kMostOfPair = 64;
  const std::vector<int64_t> all = codes_of(w);
  return std::any_of(all.begin(), all.end(), [](int64_t c) { return std::abs(c) > kMostOfPair; });
}

Stage stage_of(const GraphBuilder& g, const Node& node, const Requantize& op, bool integers) {
  const Node& sum = g.source()[node.inputs[0]];
  Stage s{sum, std::get<Product>(sum.operation), node, op};
  s.in = sum.inputs[0];
  s.out = value_of(g, node);
  s.scale = blocks_of(s.op.weight).scale;
  s.scale.resize(static_cast<size_t>(s.op.weight.rows()), s.scale[0]);
  s.shifted = byte_type(s.op.weight.dtype()) == Type::kInt8 && (integers || could_saturate(s.op.weight));
  return s;
}

// Why the operators of a rule cannot hold the product; empty if they can.
std::string not_held(const GraphBuilder& g, const Stage& s) {
  const DTypeInfo& info = s.op.weight.dtype().info();
  if (!are_integers(s.op.weight.dtype()) || info.qmin < kLeast || info.qmax > kMost + kShift)
    return concat("weights are ", s.op.weight.dtype(), ", expected integers of at most 8 bits");
  if (s.stage.rule != OutputRounding::kFloat) return "";
  const float sx = scale_of(g, s.in).scale, sy = scale_of(g, s.out).scale;
  for (size_t j = 0; j < s.scale.size(); ++j) {
    const float factor = s.stage.factor.size() == 1 ? s.stage.factor[0] : s.stage.factor[j];
    if (sx * s.scale[j] / sy != factor)
      return concat("output ", j, " has the factor ", factor, " and scales that make ", sx * s.scale[j] / sy,
                    ": a file has the scales alone");
  }
  return "";
}

std::string weight_note(const Stage& s, const WeightCodes& w) {
  const DType dtype = s.op.weight.dtype();
  const bool as_it_is = dtype == dtypes::int8 || dtype == dtypes::uint8 || type_bits(w.stored) == dtype.bits();
  std::string note = concat(", weight ", dtype, as_it_is ? " as " : " stored as ", type_name(w.stored));
  if (s.shifted) note += " (plus 128)";
  return note;
}

std::vector<int64_t> bias_of(const Product& op) {
  std::vector<int64_t> bias(static_cast<size_t>(op.weight.rows()));
  if (op.bias.defined())
    for (size_t j = 0; j < bias.size(); ++j) bias[j] = op.bias.as<int32_t>()[j];
  return bias;
}

// The product as a convolution, and its result as the model has it.
struct Images {
  std::string x;
  Product op;  // of 1 x 1 pixel, for products of rows
  OnnxValue result(GraphBuilder& g, const Stage& s, const std::string& y) const {
    return s.op.conv ? codes(y, true) : codes(reshaped(g, y, any_samples(s.node.form.sample)), false);
  }
};
Images images_of(GraphBuilder& g, const Stage& s) {
  if (s.op.conv) return {g.channels_first(s.in).name, s.op};
  Images out{reshaped(g, g.channels_last(s.in).name, {-1, s.op.weight.cols(), 1, 1}), s.op};
  out.op.conv = Conv2dOptions{};
  return out;
}

// Zero points of weights: one for each output, since all are equal.
std::string weight_zero(GraphBuilder& g, const Stage& s, Type type) {
  const std::vector<int64_t> zeros(s.scale.size(), s.shifted ? kShift : 0);
  return g.integers(zeros, {std::ssize(zeros)}, s.shifted ? Type::kUint8 : type);
}

OnnxValue qlinear_conv(GraphBuilder& g, const Stage& s) {
  const Images images = images_of(g, s);
  const WeightCodes w = write_codes(g, images.op, s.shifted);
  const std::vector<int64_t> bias = bias_of(s.op);
  const auto count = static_cast<int64_t>(bias.size());
  std::string y =
      g.add("QLinearConv",
            {images.x, g.scalar(scale_of(g, s.in).scale), zero_point(g, s.in), w.name, g.numbers(s.scale, {count}),
             weight_zero(g, s, byte_type(s.op.weight.dtype())), g.scalar(scale_of(g, s.out).scale),
             zero_point(g, s.out), g.integers(bias, {count}, Type::kInt32)},
            conv_attributes(*images.op.conv));
  y = bounded(g, y, s.stage.lo, s.stage.hi);
  g.note(concat("QLinearConv", weight_note(s, w)));
  return images.result(g, s, y);
}

// Sums by ConvInteger, the output stage in INT64.
OnnxValue conv_integer(GraphBuilder& g, const Stage& s) {
  const Images images = images_of(g, s);
  const WeightCodes w = write_codes(g, images.op, s.shifted);
  std::vector<std::string> inputs{images.x, w.name, zero_point(g, s.in)};
  if (s.shifted) inputs.push_back(g.integers({kShift}, {}, Type::kUint8));
  const std::string sums = g.add("ConvInteger", inputs, conv_attributes(*images.op.conv));
  std::string y = g.add("Add", {g.cast(sums, Type::kInt64), per_channel(g, bias_of(s.op), Type::kInt64)});
  y = requantized(g, y, s.stage.multiplier, s.stage.rule);
  y = codes_of_integers(g, y, s.stage.zero, s.stage.lo, s.stage.hi, Type::kInt64);
  g.note(concat("ConvInteger, output stage in INT64", weight_note(s, w)));
  return images.result(g, s, y);
}

constexpr const char* kRoundsInFloats =
    "ONNX Runtime rounds sums as rule float does, and the model has another rule: a code may be the next one. Use form "
    "integer, or a model of output_rounding: float";

// A product of floats, which ONNX Runtime makes a QLinearConv or a QGemm.
OnnxValue qdq_product(GraphBuilder& g, const Stage& s) {
  const bool image = s.op.conv.has_value(), rows = !image && g.source()[s.in].form.sample.rank() > 1;
  const OnnxValue in = image ? g.channels_first(s.in) : g.channels_last(s.in);
  const std::string x = values(g, rows ? reshaped(g, in.name, {-1, s.op.weight.cols()}) : in.name, s.in);
  const WeightCodes w = write_codes(g, s.op, s.shifted);
  const auto count = static_cast<int64_t>(s.scale.size());
  const std::string weight = g.add(
      "DequantizeLinear", {w.name, g.numbers(s.scale, {count}), weight_zero(g, s, byte_type(s.op.weight.dtype()))},
      {{"axis", image ? int64_t{0} : int64_t{1}}});
  std::vector<float> scale = s.scale;
  for (float& each : scale) each = scale_of(g, s.in).scale * each;
  const std::string bias =
      g.add("DequantizeLinear", {g.integers(bias_of(s.op), {count}, Type::kInt32), g.numbers(scale, {count})},
            {{"axis", int64_t{0}}});
  std::string y =
      g.add(image ? "Conv" : "Gemm", {x, weight, bias}, image ? conv_attributes(*s.op.conv) : NodeAttributes{});
  y = bounded(g, quantized(g, y, s.out), s.stage.lo, s.stage.hi);
  const bool exact = s.stage.rule == OutputRounding::kFloat;
  g.note(concat(image ? "Conv" : "Gemm", " between codes", weight_note(s, w)), exact ? Fate::kExact : Fate::kRounded,
         exact ? 0 : 1, exact ? "" : kRoundsInFloats);
  return codes(rows ? reshaped(g, y, any_samples(s.node.form.sample)) : y, image);
}

// ---- operations of codes

std::string table(GraphBuilder& g, const std::string& x, const std::array<int8_t, 256>& table) {
  std::vector<int64_t> numbers;
  numbers.reserve(table.size());
  for (const int8_t code : table) numbers.push_back(code + kShift);
  return g.add("Gather", {g.integers(numbers, {std::ssize(numbers)}, Type::kUint8), g.cast(x, Type::kInt32)});
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const Requantize& op) {
  if (!std::holds_alternative<Product>(g.source()[node.inputs[0]].operation)) {
    const OnnxValue& x = g.stand(node.inputs[0]);
    std::array<int8_t, 256> all{};
    for (int64_t c = kLeast; c <= kMost; ++c)
      all[static_cast<size_t>(c + kShift)] = static_cast<int8_t>(inference::code_of(op, static_cast<int32_t>(c), 0));
    g.note("other scale: Gather of 256 codes");
    return codes(table(g, x.name, all), x.channels_first);
  }
  const bool in_integers = !g.qdq() && op.rule != OutputRounding::kFloat;
  const Stage s = stage_of(g, node, op, in_integers);
  g.begin(s.sum);
  if (const std::string why = not_held(g, s); !why.empty()) {
    g.refuse("integer product", why);
    return codes("refused", false);
  }
  return in_integers ? conv_integer(g, s) : g.qdq() ? qdq_product(g, s) : qlinear_conv(g, s);
}

// Written with its output stage.
OnnxValue integer_node(GraphBuilder&, const Node&, const Product&) { return {"", Type::kInt32, false, "", ""}; }

OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::Table& op) {
  const OnnxValue& x = g.stand(node.inputs[0]);
  g.note(concat(op.function.empty() ? "other scale" : op.function, ": Gather of 256 codes"));
  return codes(table(g, x.name, op.codes), x.channels_first);
}

// An operator of floats between codes; ONNX Runtime has its own rounding for it.
OnnxValue qdq_operator(GraphBuilder& g, const Node& node, const char* operation, const std::vector<std::string>& x,
                       const NodeAttributes& attributes, int64_t lo, int64_t hi, const char* reason) {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < x.size(); ++i) inputs.push_back(values(g, x[i], node.inputs[i]));
  const std::string y = quantized(g, g.add(operation, inputs, attributes), value_of(g, node));
  g.note(concat(operation, " between codes"), *reason == '\0' ? Fate::kExact : Fate::kRounded, *reason == '\0' ? 0 : 1,
         reason);
  return codes(bounded(g, y, lo, hi), g.stand(node.inputs[0]).channels_first);
}

// Both inputs in the order of axes of the first.
std::array<std::string, 2> pair_of(GraphBuilder& g, const Node& node) {
  const bool first = g.stand(node.inputs[0]).channels_first;
  return {g.in_order(node.inputs[0], first).name, g.in_order(node.inputs[1], first).name};
}
std::string wide(GraphBuilder& g, const std::string& x, int64_t zero) {
  return g.add("Sub", {g.cast(x, Type::kInt32), g.integers({zero + kShift}, {}, Type::kInt32)});
}

// (sum of factor_i * (x_i - zero_in_i) + 2^(shift-1)) >> shift, in INT32 if its numbers fit. As much is added as makes
// the sum positive, so that the division rounds down.
std::string float_sum(GraphBuilder& g, const IntegerAdd& op, const std::array<std::string, 2>& x) {
  constexpr int64_t kCodes = 256, kMostInt32 = int64_t{1} << 31;
  const int64_t unit = int64_t{1} << op.shift, half = unit >> 1;
  int64_t least = half, span = 0;
  for (size_t i = 0; i < 2; ++i) {
    least -= op.factor[i] * (op.zero_in[i] + kShift);
    span += op.factor[i] * (kCodes - 1);
  }
  const int64_t units = least < 0 ? (-least + unit - 1) / unit : 0, first = least + units * unit;
  const Type type = first + span < kMostInt32 && unit < kMostInt32 ? Type::kInt32 : Type::kInt64;
  const auto number = [&](int64_t n) { return g.integers({n}, {}, type); };
  const auto times = [&](size_t i) { return g.add("Mul", {g.cast(x[i], type), number(op.factor[i])}); };
  const std::string sum = g.add("Add", {g.add("Add", {times(0), times(1)}), number(first)});
  return codes_of_integers(g, g.add("Div", {sum, number(unit)}), op.zero - units, op.lo, op.hi, type);
}

// Each input times 2^20, requantized, is a function of its code: a table.
std::string integer_sum(GraphBuilder& g, const IntegerAdd& op, const std::array<std::string, 2>& x) {
  std::array<std::string, 2> part;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<int64_t> all;
    for (int64_t c = kLeast; c <= kMost; ++c)
      all.push_back(
          requantize(static_cast<int32_t>((c - op.zero_in[i]) * (1 << IntegerAdd::kLeft)), op.in[i], op.rule));
    part[i] = g.add("Gather", {g.integers(all, {std::ssize(all)}), g.cast(x[i], Type::kInt32)});
  }
  const std::string sum = requantized(g, g.add("Add", {part[0], part[1]}), {op.out}, op.rule);
  return codes_of_integers(g, sum, op.zero, op.lo, op.hi, Type::kInt64);
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const IntegerAdd& op) {
  const auto x = pair_of(g, node);
  if (g.qdq())
    return qdq_operator(g, node, "Add", {x[0], x[1]}, {}, op.lo, op.hi,
                        "ONNX Runtime adds and rounds in floats: a sum near the middle of two codes may be the next "
                        "one. Form integer is exact");
  const bool floats = op.rule == OutputRounding::kFloat;
  g.note(floats ? "sum of codes in integers" : "sum of codes in INT64");
  return codes(floats ? float_sum(g, op, x) : integer_sum(g, op, x), g.stand(node.inputs[0]).channels_first);
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const IntegerMultiply& op) {
  const auto x = pair_of(g, node);
  if (g.qdq())
    return qdq_operator(g, node, "Mul", {x[0], x[1]}, {}, op.lo, op.hi,
                        "ONNX Runtime multiplies and rounds in floats: a product near the middle of two codes may be "
                        "the next one. Form integer is exact");
  const std::string product = g.add("Mul", {wide(g, x[0], op.zero_in[0]), wide(g, x[1], op.zero_in[1])});
  const bool floats = op.rule == OutputRounding::kFloat;
  std::string y = g.cast(product, floats ? Type::kFloat : Type::kInt64);
  if (floats) {  // within 2^24 floats are exact, and what is beyond is clamped to int32 by the bounds
    y = g.add("Round", {g.add("Mul", {y, g.scalar(op.factor)})});
    y = g.add("Clip", {y, g.scalar(-65536.0f), g.scalar(65536.0f)});
    y = codes_of_integers(g, g.cast(y, Type::kInt32), op.zero, op.lo, op.hi, Type::kInt32);
  } else {
    y = codes_of_integers(g, requantized(g, y, {op.multiplier}, op.rule), op.zero, op.lo, op.hi, Type::kInt64);
  }
  g.note(floats ? "product of codes" : "product of codes in INT64");
  return codes(y, g.stand(node.inputs[0]).channels_first);
}

// How many pixels of the image each window has, [h, w]; one number if all have as many.
std::vector<int64_t> counts_of(const Shape& in, const Shape& out, const PoolOptions& o) {
  const auto inside = [&](size_t axis, int64_t at) {
    const int64_t from = at * o.stride[axis] - o.padding[axis];
    return std::min(from + o.size[axis], in[axis]) - std::max<int64_t>(from, 0);
  };
  std::vector<int64_t> counts;
  for (int64_t y = 0; y < out[0]; ++y)
    for (int64_t x = 0; x < out[1]; ++x) counts.push_back(inside(0, y) * inside(1, x));
  if (std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; })) counts.resize(1);
  return counts;
}

// (a + n/2) / n of sums above 0, else (a - n/2) / n, rounded towards zero.
std::string mean(GraphBuilder& g, const Node& node, const IntegerAvgPool& op, const std::string& x) {
  const Shape& in = g.source()[node.inputs[0]].form.sample;
  std::vector<int64_t> counts{in[0] * in[1]};
  std::string sums;
  if (op.whole_image) {
    sums = g.add("ReduceSum", {wide(g, x, 0), g.integers({2, 3}, {2})}, {{"keepdims", int64_t{0}}});
  } else {
    const PoolOptions& o = op.options;
    counts = counts_of(in, node.form.sample, o);
    const std::vector<int64_t> ones(static_cast<size_t>(in[2] * o.size[0] * o.size[1]), 1);
    Conv2dOptions window{.kernel = o.size, .stride = o.stride, .padding = o.padding};
    window.groups = in[2];
    sums = g.add(
        "ConvInteger",
        {x, g.integers(ones, {in[2], 1, o.size[0], o.size[1]}, Type::kUint8), g.integers({kShift}, {}, Type::kUint8)},
        conv_attributes(window));
  }
  std::vector<int64_t> halves = counts;
  for (int64_t& each : halves) each /= 2;
  const auto by_window = [&](const std::vector<int64_t>& n) {
    return g.integers(n, n.size() == 1 ? std::vector<int64_t>{} : std::vector{node.form.sample[0], node.form.sample[1]},
                      Type::kInt32);
  };
  const std::string half = g.add("Mul", {g.add("Sign", {sums}), by_window(halves)});
  const std::string y = g.add("Div", {g.add("Add", {sums, half}), by_window(counts)});
  return codes_of_integers(g, y, 0, op.lo, op.hi, Type::kInt32);
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const IntegerAvgPool& op) {
  const OnnxValue x = g.channels_first(node.inputs[0]);
  if (!g.qdq()) {
    g.note("mean of codes in integers");
    return codes(mean(g, node, op, x.name), !op.whole_image);
  }
  OnnxValue y = qdq_operator(g, node, op.whole_image ? "GlobalAveragePool" : "AveragePool", {x.name},
                             op.whole_image ? NodeAttributes{} : pool_attributes(op.options), op.lo, op.hi,
                             "ONNX Runtime rounds a mean in the middle of two codes to the even one, bitgrad away from "
                             "code 0: a code may be the next one. Form integer is exact");
  y.channels_first = !op.whole_image;
  if (op.whole_image) y.name = reshaped(g, y.name, any_samples(node.form.sample));
  return y;
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::MaxPool& op) {
  const OnnxValue x = g.channels_first(node.inputs[0]);
  if (g.qdq()) {
    OnnxValue y = qdq_operator(g, node, "MaxPool", {x.name}, pool_attributes(op.options), kLeast, kMost, "");
    y.channels_first = true;
    return y;
  }
  g.note("MaxPool");
  return codes(g.add("MaxPool", {x.name}, pool_attributes(op.options)), true);
}

// As UINT8. Form qdq, too: a division by the scale.
OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::Quantize& op) {
  inference::Quantize moved = op;
  moved.spec.dtype = dtypes::uint8;
  moved.lo += kShift;
  moved.hi += kShift;
  moved.zero.resize(1, 0);
  moved.zero[0] += static_cast<int32_t>(kShift);
  return write(g, node, moved);
}

OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::Dequantize&) {
  const OnnxValue x = g.stand(node.inputs[0]);
  const CodeScale s = scale_of(g, node.inputs[0]);
  std::string y;
  if (g.qdq())
    y = values(g, x.name, node.inputs[0]);
  else
    y = g.add("Mul",
              {g.add("Sub", {g.to_float(x.name), g.scalar(static_cast<float>(s.zero + kShift))}), g.scalar(s.scale)});
  g.note("dequantize");
  return {y, Type::kFloat, x.channels_first, "", ""};
}

template <typename Operation>
OnnxValue integer_node(GraphBuilder& g, const Node&, const Operation&) {
  g.refuse("layer", "networks of integers have no such layer");
  return codes("refused", false);
}

// Codes move: the operators of other networks.
OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::Reshape&) {
  return codes(write_node(g, node).name, false);
}
OnnxValue integer_node(GraphBuilder& g, const Node& node, const inference::Join& op) {
  if (op.kind == inference::JoinKind::kConcat) {
    const bool first = g.stand(node.inputs[0]).channels_first;
    return codes(write_node(g, node).name, first);
  }
  g.refuse("join", "sums and products of codes have scales");
  return codes("refused", false);
}

}  // namespace

OnnxValue write_integer_node(GraphBuilder& g, const Node& node) {
  return std::visit([&](const auto& op) { return integer_node(g, node, op); }, node.operation);
}

void note_rounding(ExportReport& report, OutputRounding rule, bool qdq) {
  const char* text = "in ONNX Runtime the codes are those of bitgrad, in sessions of any options";
  if (qdq)
    text = rule == OutputRounding::kFloat
               ? "in ONNX Runtime's default session the codes are those of bitgrad, except behind layers that are "
                 "rounded; other clients, and sessions without optimizations, round sums of floats"
               : "ONNX Runtime rounds by rule float: codes may be the next ones, everywhere. Form integer has equal "
                 "codes, and so has form qdq of a model of output_rounding: float without sums and means";
  report.facts.emplace_back("rounding", concat(enum_name(rule), ": ", text));
}

}  // namespace bitgrad::onnx
