// Operations of integer graphs as those of TensorFlow Lite: a function each. Values are [1, h, w, c]: of rows [1, rows,
// 1, features], of features alone [1, 1, 1, features]. Only the file's input and output have the shapes of the model.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "bitgrad/base/error.h"
#include "export/targets.h"
#include "export/tflite.h"
#include "export/tflite_model.h"

namespace bitgrad::tflite {
namespace {

using inference::CodeScale;
using inference::Graph;
using inference::Node;
using inference::Product;
using inference::Requantize;
using inference::Value;
using Fate = ExportedTensor::Fate;

constexpr Op kConv{BuiltinOperator::CONV_2D, 3, "1.14.0"}, kConvGroups{BuiltinOperator::CONV_2D, 6, "2.9.0"},
    kConvInt4{BuiltinOperator::CONV_2D, 7, "2.11.0"}, kDepthwise{BuiltinOperator::DEPTHWISE_CONV_2D, 3, "1.14.0"},
    kAdd{BuiltinOperator::ADD, 2, "1.14.0"}, kAddInt32{BuiltinOperator::ADD, 1, "1.5.0"},
    kMul{BuiltinOperator::MUL, 2, "1.14.0"}, kMulLarge{BuiltinOperator::MUL, 3, "1.15.0"},
    kAvgPool{BuiltinOperator::AVERAGE_POOL_2D, 2, "1.14.0"}, kMaxPool{BuiltinOperator::MAX_POOL_2D, 2, "1.14.0"},
    kConcat{BuiltinOperator::CONCATENATION, 2, "1.14.0"}, kReshape{BuiltinOperator::RESHAPE, 1, "1.5.0"},
    kSoftmax{BuiltinOperator::SOFTMAX, 2, "1.14.0"}, kPad{BuiltinOperator::PAD, 2, "1.14.0"},
    kPadV2{BuiltinOperator::PADV2, 2, "1.14.0"}, kCast{BuiltinOperator::CAST, 1, "1.5.0"},
    kGather{BuiltinOperator::GATHER, 2, "1.14.0"};

std::vector<int32_t> dims_of(const Shape& sample) {
  std::vector<int64_t> d = sample.dims();
  if (d.size() == 1) d = {1, 1, d[0]};
  if (d.size() == 2) d = {d[0], 1, d[1]};
  d.insert(d.begin(), 1);
  return {d.begin(), d.end()};
}
std::vector<int32_t> natural_dims(const Shape& sample) {
  std::vector<int32_t> d{1};
  for (const int64_t each : sample.dims()) d.push_back(static_cast<int32_t>(each));
  return d;
}

class Writer {
 public:
  Writer(const Graph& graph, ExportReport& report)
      : graph_(graph), report_(report), tensors_(graph.nodes().size(), -1) {}
  std::vector<uint8_t> run(const std::string& name, const ExportSpec& spec);

 private:
  struct Padded {
    TensorId tensor = -1;
    Padding padding = Padding::VALID;
  };

  void write(const Node& node, const Product& op);
  void write(const Node&, const Requantize& op);
  void write(const Node& node, const inference::IntegerAdd& op);
  void write(const Node& node, const inference::IntegerMultiply& op);
  void write(const Node& node, const inference::IntegerAvgPool& op);
  void write(const Node& node, const inference::MaxPool& op);
  void write(const Node& node, const inference::Table& op);
  void write(const Node& node, const inference::Reshape&);
  void write(const Node& node, const inference::Join& op);
  template <typename Operation>
  void write(const Node&, const Operation&) {
    refuse("layer", "networks of integers have no such layer");
  }

  TensorId value(Value v, const std::vector<int32_t>& dims);
  TensorId input(const Node& node, size_t i = 0) const { return tensors_[static_cast<size_t>(node.inputs[i])]; }
  TensorId result() { return tensors_[static_cast<size_t>(now_)] = value(now_, dims_of(graph_[now_].form.sample)); }
  TensorId weights(const Product& op, const Conv2dOptions& c, bool depthwise, bool packed);
  TensorId bias(const Product& op, float in_scale);
  void table(const Node& node, const std::array<int8_t, 256>& codes, const std::string& what);
  TensorId softmax(TensorId from, const CodeScale& s);
  void reshape(TensorId from, TensorId to, const std::vector<int32_t>& dims);
  ActivationFunctionType clamp(int64_t lo, int64_t hi);
  // The input with its padding, as TensorFlow's "same", or with pixels of `code` around it.
  Padded padded(const Node& node, const Conv2dOptions& c, int64_t code);
  CodeScale scale(Value v) const { return inference::code_scale(graph_[v]); }

  void note(std::string operation) { report_.layers.push_back({layer(), std::move(operation), Fate::kExact, 0, ""}); }
  void refuse(std::string operation, std::string reason) {
    report_.layers.push_back({layer(), std::move(operation), Fate::kRefused, 0, std::move(reason)});
  }
  const std::string& layer() const { return graph_[now_].layer; }

  const Graph& graph_;
  ExportReport& report_;
  FileBuilder model_;
  std::vector<TensorId> tensors_;  // per node
  Value now_ = 0;                  // whose codes are written
};

TensorId Writer::value(Value v, const std::vector<int32_t>& dims) {
  const CodeScale s = scale(v);
  return model_.tensor(
      {.name = concat(graph_[v].layer, ':', v), .shape = dims, .scale = {s.scale}, .zero = s.zero, .dimension = 0});
}

ActivationFunctionType Writer::clamp(int64_t lo, int64_t hi) {
  const CodeScale y = scale(now_);
  const auto code = [&](double x) {
    return std::clamp<int64_t>(y.zero + std::llround(x / static_cast<double>(y.scale)), -128, 127);
  };
  if (lo == -128 && hi == 127) return ActivationFunctionType::NONE;
  if (lo == code(0) && hi == 127) return ActivationFunctionType::RELU;
  if (lo == code(0) && hi == code(6)) return ActivationFunctionType::RELU6;
  if (lo == code(-1) && hi == code(1)) return ActivationFunctionType::RELU_N1_TO_1;
  refuse("activation", concat("codes of ", lo, " to ", hi,
                              " are none of TensorFlow Lite's activations: relu, relu6, or hardtanh (-1 to 1)"));
  return ActivationFunctionType::NONE;
}

Writer::Padded Writer::padded(const Node& node, const Conv2dOptions& c, int64_t code) {
  const Shape& in = graph_[node.inputs[0]].form.sample;
  const auto& p = c.padding;
  if (p == std::array<int64_t, 4>{}) return {input(node), Padding::VALID};
  if (in.rank() == 3 && p == same_padding(in[0], in[1], c)) return {input(node), Padding::SAME};
  const CodeScale s = scale(node.inputs[0]);
  const auto n = [](int64_t x) { return static_cast<int32_t>(x); };
  const TensorId amounts =
      model_.constant(concat(layer(), ":padding"), {4, 2}, {0, 0, n(p[0]), n(p[2]), n(p[1]), n(p[3]), 0, 0});
  const TensorId wide = model_.tensor({.name = concat(layer(), ":padded"),
                                       .shape = {1, n(in[0] + p[0] + p[2]), n(in[1] + p[1] + p[3]), n(in[2])},
                                       .scale = {s.scale},
                                       .zero = s.zero});
  if (code == s.zero) {
    model_.add(kPad, {input(node), amounts}, wide, CreatePadOptions(model_.flat()));
  } else {
    const TensorId outside =
        model_.constant({.name = concat(layer(), ":outside"), .shape = {1}, .scale = {s.scale}, .zero = s.zero},
                        {static_cast<uint8_t>(code)});
    model_.add(kPadV2, {input(node), amounts, outside}, wide, CreatePadV2Options(model_.flat()));
  }
  return {wide, Padding::VALID};
}

// Codes in the file's order: [o, kh, kw, c]; of depthwise convolutions [1, kh, kw, o].
TensorId Writer::weights(const Product& op, const Conv2dOptions& c, bool depthwise, bool packed) {
  const auto n = [](int64_t x) { return static_cast<int32_t>(x); };
  const int64_t o = op.weight.rows(), k = op.weight.cols(), taps = c.kernel[0] * c.kernel[1];
  std::vector<int64_t> codes = codes_of(op.weight);
  if (depthwise) {
    std::vector<int64_t> turned(codes.size());
    for (int64_t j = 0; j < o; ++j)
      for (int64_t t = 0; t < k; ++t) turned[static_cast<size_t>(t * o + j)] = codes[static_cast<size_t>(j * k + t)];
    codes = turned;
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!packed)
      bytes.push_back(static_cast<uint8_t>(codes[i]));
    else if (i % 2 == 0)
      bytes.push_back(static_cast<uint8_t>(codes[i] & 15));
    else
      bytes.back() = static_cast<uint8_t>(bytes.back() | ((codes[i] & 15) << 4));
  }
  std::vector<float> scales = blocks_of(op.weight).scale;
  if (scales.size() == 1) scales.resize(static_cast<size_t>(o), scales[0]);
  TensorSpec spec{.name = concat(layer(), ".weight"), .scale = scales, .dimension = depthwise ? 3 : 0};
  spec.shape = depthwise ? std::vector<int32_t>{1, n(c.kernel[0]), n(c.kernel[1]), n(o)}
                         : std::vector<int32_t>{n(o), n(c.kernel[0]), n(c.kernel[1]), n(k / taps)};
  if (packed) spec.type = TensorType::INT4;
  report_.tensors.push_back({.name = spec.name,
                             .parameter = spec.name,
                             .shape = Shape(std::vector<int64_t>(spec.shape.begin(), spec.shape.end())),
                             .type = packed ? "INT4" : "INT8"});
  return model_.constant(spec, bytes);
}

TensorId Writer::bias(const Product& op, float in_scale) {
  const int64_t o = op.weight.rows();
  std::vector<float> scales = blocks_of(op.weight).scale;
  scales.resize(static_cast<size_t>(o), scales[0]);
  for (float& s : scales) s = in_scale * s;
  std::vector<uint8_t> bytes;
  for (int64_t j = 0; j < o; ++j) {
    const auto b = static_cast<uint32_t>(op.bias.defined() ? op.bias.as<int32_t>()[j] : 0);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(b >> (8 * i)));
  }
  const std::string name = concat(layer(), ".bias");
  report_.tensors.push_back({.name = name, .parameter = name, .shape = Shape{o}, .type = "INT32"});
  return model_.constant({.name = name, .shape = {static_cast<int32_t>(o)}, .type = TensorType::INT32, .scale = scales},
                         bytes);
}

// A product of rows is a convolution of 1 x 1 pixel: on it all readers agree, on FULLY_CONNECTED they do not.
void Writer::write(const Node& node, const Product& op) {
  const Node* const stage_node = graph_.only_reader(now_);
  const auto& stage = std::get<Requantize>(stage_node->operation);
  const Conv2dOptions c = op.conv.value_or(Conv2dOptions{});
  const DTypeInfo& info = op.weight.dtype().info();
  if (!are_integers(op.weight.dtype()) || info.qmin < -128 || info.qmax > 127)
    return refuse(concat("product with ", op.weight.dtype()), "weights are integer codes of -128 to 127");
  const int64_t channels = graph_[node.inputs[0]].form.features(), o = op.weight.rows();
  const bool depthwise = c.groups > 1 && c.groups == channels;
  // XNNPACK leaves convolutions of INT4 to kernels that round by another rule, and the reference kernels of LiteRT have
  // no depthwise convolution of INT4 (version 7 of the operation).
  const bool small = info.qmin >= -8 && info.qmax <= 7, by_float = stage.rule == OutputRounding::kFloat;
  const bool packed = small && !by_float && !depthwise;
  const auto n = [](int64_t x) { return static_cast<int32_t>(x); };
  now_ = static_cast<Value>(stage_node - graph_.nodes().data());
  const Padded in = padded(node, c, scale(node.inputs[0]).zero);
  const std::vector<TensorId> inputs{in.tensor, weights(op, c, depthwise, packed),
                                     bias(op, scale(node.inputs[0]).scale)};
  const ActivationFunctionType activation = clamp(stage.lo, stage.hi);
  flatbuffers::FlatBufferBuilder& f = model_.flat();
  const TensorId y = result();
  if (depthwise)
    model_.add(kDepthwise, inputs, y,
               CreateDepthwiseConv2DOptions(f, in.padding, n(c.stride[1]), n(c.stride[0]), n(o / channels), activation,
                                            n(c.dilation[1]), n(c.dilation[0])));
  else
    model_.add(packed         ? kConvInt4
               : c.groups > 1 ? kConvGroups
                              : kConv,
               inputs, y,
               CreateConv2DOptions(f, in.padding, n(c.stride[1]), n(c.stride[0]), activation, n(c.dilation[1]),
                                   n(c.dilation[0])));
  const bool same_bits = packed ? info.bits == 4 : info.bits == 8;
  note(concat(depthwise ? "DEPTHWISE_CONV_2D" : "CONV_2D", ", weights ", op.weight.dtype(),
              same_bits  ? ""
              : packed   ? " stored as INT4"
              : !small   ? " stored as INT8"
              : by_float ? " stored as INT8, since XNNPACK has no convolution of INT4"
                         : " stored as INT8, since LiteRT's reference kernels have no depthwise convolution of INT4"));
}

// With a product it is its output stage; else codes of another scale, by a table of 256 codes.
void Writer::write(const Node& node, const Requantize& op) {
  if (std::holds_alternative<Product>(graph_[node.inputs[0]].operation)) return;
  std::array<int8_t, 256> codes{};
  for (int32_t x = -128; x < 128; ++x)
    codes[static_cast<size_t>(x + 128)] = static_cast<int8_t>(inference::code_of(op, x, 0));
  table(node, codes, "other scale");
}

void Writer::write(const Node& node, const inference::Table& op) {
  table(node, op.codes, op.function.empty() ? "other scale" : op.function);
}

// Readers compute functions of codes in rules of their own; reading them from a table is exact in all.
void Writer::table(const Node& node, const std::array<int8_t, 256>& codes, const std::string& what) {
  const std::vector<int32_t> dims = dims_of(graph_[now_].form.sample);
  const CodeScale s = scale(now_);
  const TensorId numbers = model_.tensor({.name = concat(layer(), ":int32"), .shape = dims, .type = TensorType::INT32});
  const TensorId index = model_.tensor({.name = concat(layer(), ":index"), .shape = dims, .type = TensorType::INT32});
  const TensorId half = model_.constant(concat(layer(), ":128"), {1}, {128});
  const TensorId all =
      model_.constant({.name = concat(layer(), ":table"), .shape = {256}, .scale = {s.scale}, .zero = s.zero},
                      std::vector<uint8_t>(codes.begin(), codes.end()));
  flatbuffers::FlatBufferBuilder& f = model_.flat();
  model_.add(kCast, {input(node)}, numbers, CreateCastOptions(f, TensorType::INT8, TensorType::INT32));
  model_.add(kAddInt32, {numbers, half}, index, CreateAddOptions(f, ActivationFunctionType::NONE, false));
  model_.add(kGather, {all, index}, result(), CreateGatherOptions(f, 0, 0));
  note(concat(what, ": CAST, ADD, GATHER of 256 codes"));
}

void Writer::write(const Node& node, const inference::IntegerAdd& op) {
  const ActivationFunctionType activation = clamp(op.lo, op.hi);
  model_.add(kAdd, {input(node, 0), input(node, 1)}, result(), CreateAddOptions(model_.flat(), activation, false));
  note("ADD");
}

void Writer::write(const Node& node, const inference::IntegerMultiply& op) {
  const ActivationFunctionType activation = clamp(op.lo, op.hi);
  const bool large = scale(node.inputs[0]).scale * scale(node.inputs[1]).scale / scale(now_).scale >= 1;
  model_.add(large ? kMulLarge : kMul, {input(node, 0), input(node, 1)}, result(),
             CreateMulOptions(model_.flat(), activation));
  note("MUL");
}

void Writer::write(const Node& node, const inference::IntegerAvgPool& op) {
  const Shape& in = graph_[node.inputs[0]].form.sample;
  PoolOptions o = op.options;
  if (op.whole_image) o = {{in[0], in[1]}, {1, 1}, {0, 0, 0, 0}};
  const Conv2dOptions window{.kernel = o.size, .stride = o.stride, .padding = o.padding};
  if (o.padding != std::array<int64_t, 4>{} && o.padding != same_padding(in[0], in[1], window))
    return refuse("AVERAGE_POOL_2D",
                  "its padding is neither none nor TensorFlow's \"same\", and a pixel that is added "
                  "would count in the mean");
  const Padded x = padded(node, window, 0);
  const ActivationFunctionType activation = clamp(op.lo, op.hi);
  const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
  model_.add(kAvgPool, {x.tensor}, result(),
             CreatePool2DOptions(model_.flat(), x.padding, n(o.stride[1]), n(o.stride[0]), n(o.size[1]), n(o.size[0]),
                                 activation));
  note("AVERAGE_POOL_2D");
}

void Writer::write(const Node& node, const inference::MaxPool& op) {
  const PoolOptions& o = op.options;
  const Padded x = padded(node, {.kernel = o.size, .stride = o.stride, .padding = o.padding}, -128);
  const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
  model_.add(kMaxPool, {x.tensor}, result(),
             CreatePool2DOptions(model_.flat(), x.padding, n(o.stride[1]), n(o.stride[0]), n(o.size[1]), n(o.size[0])));
  note("MAX_POOL_2D");
}

void Writer::reshape(TensorId from, TensorId to, const std::vector<int32_t>& dims) {
  const TensorId shape = model_.constant(concat(layer(), ":shape"), {static_cast<int32_t>(dims.size())}, dims);
  model_.add(kReshape, {from, shape}, to, CreateReshapeOptionsDirect(model_.flat(), &dims));
}

void Writer::write(const Node& node, const inference::Reshape&) {
  const std::vector<int32_t> dims = dims_of(node.form.sample);
  reshape(input(node), result(), dims);
  note("RESHAPE");
}

void Writer::write(const Node& node, const inference::Join& op) {
  if (op.kind != inference::JoinKind::kConcat) return refuse("join", "sums and products of codes have scales");
  std::vector<TensorId> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(input(node, i));
  model_.add(kConcat, parts, result(), CreateConcatenationOptions(model_.flat(), 3));
  note("CONCATENATION");
}

TensorId Writer::softmax(TensorId from, const CodeScale& s) {
  now_ = graph_[graph_.output()].inputs[0];
  const TensorId to = model_.tensor({.name = concat(layer(), ":softmax"),
                                     .shape = natural_dims(graph_[now_].form.sample),
                                     .scale = {s.scale},
                                     .zero = s.zero});
  model_.add(kSoftmax, {from}, to, CreateSoftmaxOptions(model_.flat(), 1.0f));
  note("SOFTMAX");
  return to;
}

std::vector<uint8_t> Writer::run(const std::string& name, const ExportSpec& spec) {
  const auto inner = [&](Value v, TensorId outer, bool in) {
    const Shape& sample = graph_[v].form.sample;
    if (sample.rank() == 3) return outer;
    now_ = v;
    const TensorId own = in ? value(v, dims_of(sample)) : value(v, natural_dims(sample));
    reshape(outer, own, in ? dims_of(sample) : natural_dims(sample));
    return own;
  };
  const TensorId input = value(1, natural_dims(graph_[1].form.sample));
  tensors_[1] = inner(1, input, true);
  for (Value v = 2; v < graph_.output(); ++v) {
    now_ = v;
    std::visit([&](const auto& op) { write(graph_[v], op); }, graph_[v].operation);
  }
  const Value last = graph_[graph_.output()].inputs[0];
  if (report_.refused()) return {};
  TensorId output = inner(last, tensors_[static_cast<size_t>(last)], false);
  if (spec.softmax) output = softmax(output, output_scale(graph_, spec));
  return model_.finish(input, output, name);
}

}  // namespace

std::vector<uint8_t> file_of(const Graph& graph, const std::string& name, const ExportSpec& spec,
                             ExportReport& report) {
  return Writer(graph, report).run(name, spec);
}

}  // namespace bitgrad::tflite
