// Products: summed in integers if both sides are codes (docs/numerics.md section 4), otherwise in floats.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "export/onnx_graph.h"
#include "export/targets.h"

namespace bitgrad::onnx {
namespace {

using inference::Node;
using inference::Product;
using Fate = ExportedTensor::Fate;

constexpr const char* kMicrosoft = "com.microsoft";

double largest(DType dtype, bool zero) {
  const DTypeInfo& i = dtype.info();
  if (zero) return static_cast<double>(i.qmax - i.qmin);
  return static_cast<double>(std::max(std::abs(i.qmin), std::abs(i.qmax)));
}
std::vector<float> numbers_or_one(const std::shared_ptr<const Tensor>& t) {
  return t ? t->to_vector() : std::vector<float>{1.0f};
}

// Why integer operators cannot compute the sums; empty if they can.
std::string not_integers(const Node& x, const OnnxValue& stand, const Product& op) {
  const Tensor& w = op.weight;
  const ScaleMap map = w.scale_map();
  if (!are_integers(x.form.dtype) || !are_integers(w.dtype())) return "one side is floats";
  if (map.offset != nullptr || (x.params && x.params->offset)) return "codes have real offsets";
  if (!map.per_tensor() && !map.per_row()) return "weights have scales of groups";
  if (x.params && x.params->scale && x.params->scale->numel() > 1) return "inputs have scales of channels";
  if (op.conv && map.zero != nullptr) return "weights of a convolution have zero points";
  if (op.conv && (stand.scale_of_rows || !stand.zero.empty()))
    return "inputs of a convolution have scales of pixels, or zero points, that are found at run time";
  const bool zx = (x.params && x.params->zero) || !stand.zero.empty();
  const double bound =
      largest(x.form.dtype, zx) * largest(w.dtype(), map.zero != nullptr) * static_cast<double>(w.cols());
  return bound < 0x1p31 ? "" : "sums could pass 2^31";
}

bool has_padding(const Conv2dOptions& o) {
  return std::any_of(o.padding.begin(), o.padding.end(), [](int64_t p) { return p != 0; });
}

// Explicit padding, for convolutions whose pad value is not 0.
std::string padded(GraphBuilder& g, const std::string& x, const Conv2dOptions& o, const std::string& value) {
  const std::string sides = g.integers({0, 0, o.padding[0], o.padding[1], 0, 0, o.padding[2], o.padding[3]}, {8});
  return g.add("Pad", {x, sides, value});
}

// Multiplies sums by the scale of each output, fp32(sx * sw), and adds the bias.
std::string scaled(GraphBuilder& g, const Node& x, const OnnxValue& sx, const Product& op, const std::string& sums,
                   const OnnxValue& like) {
  std::string y = g.to_float(sums);
  std::vector<float> sw = numbers_or_one(op.weight.quant() ? op.weight.quant()->scale : nullptr);
  if (!sx.scale.empty()) {
    // Abs does not change the value. Without it ONNX Runtime fuses this into one operator, which rounds in another
    // order.
    y = g.add("Mul", {y, g.add("Abs", {g.add("Mul", {sx.scale, g.per_feature(sw, like)})})});
  } else {
    const float s = numbers_or_one(x.params ? x.params->scale : nullptr)[0];
    const bool ones = s == 1.0f && std::all_of(sw.begin(), sw.end(), [](float v) { return v == 1.0f; });
    for (float& each : sw) each = s * each;
    if (!ones) y = g.add("Mul", {y, g.per_feature(sw, like)});
  }
  if (op.bias.defined()) y = g.add("Add", {y, g.per_feature(op.bias.to_vector(), like)});
  return y;
}

std::string integer_conv(GraphBuilder& g, const Node& in, const OnnxValue& x, const Product& op,
                         const std::string& weight) {
  const Conv2dOptions& o = *op.conv;
  std::string image = x.name;
  std::vector<std::string> inputs{image, weight};
  const bool pads = has_padding(o) && o.pad_value != 0;
  if (pads) inputs[0] = padded(g, image, o, g.integers({o.pad_value}, {}, x.type));
  int64_t zero = in.params && in.params->zero ? static_cast<int64_t>(in.params->zero->elements()[0]) : 0;
  const bool bytes = g.opset() < kFirstOpsetOfInt8Conv, moved = bytes && x.type == Type::kInt8;
  if (moved) {
    const std::string wide = g.cast(inputs[0], Type::kInt32);
    inputs[0] = g.cast(g.add("Add", {wide, g.integers({kShift}, {}, Type::kInt32)}), Type::kUint8);
    zero += kShift;
  }
  const bool of_weight = bytes && byte_type(op.weight.dtype()) == Type::kInt8;
  if (zero != 0 || of_weight) inputs.push_back(g.integers({zero}, {}, moved ? Type::kUint8 : x.type));
  if (of_weight) inputs.push_back(g.integers({kShift}, {}, Type::kUint8));
  return g.add("ConvInteger", inputs, conv_attributes(o, pads));
}

// Zero points per row computed at run time are corrected in integers: sum q w - z sum w.
std::string integer_matmul(GraphBuilder& g, const Node& in, const OnnxValue& x, const Product& op,
                           const std::string& weight) {
  std::vector<std::string> inputs{x.name, weight};
  const bool zx = in.params && in.params->zero;
  const ScaleMap map = op.weight.scale_map();
  if (zx) inputs.push_back(g.integers({static_cast<int64_t>(in.params->zero->elements()[0])}, {}, x.type));
  if (map.zero != nullptr) {
    if (!zx) inputs.push_back("");
    const int64_t count = map.per_tensor() ? 1 : op.weight.rows();
    std::vector<int64_t> zeros(map.zero, map.zero + count);
    inputs.push_back(g.integers(zeros, count == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{count},
                                byte_type(op.weight.dtype())));
  }
  std::string sums = g.add("MatMulInteger", inputs);
  if (x.zero.empty()) return sums;
  std::vector<int64_t> of_row;
  const std::vector<int64_t> codes = codes_of(op.weight);
  for (int64_t r = 0; r < op.weight.rows(); ++r) {
    int64_t sum = 0;
    for (int64_t c = 0; c < op.weight.cols(); ++c)
      sum += codes[static_cast<size_t>(r * op.weight.cols() + c)] - (map.zero ? map.zero[map.per_tensor() ? 0 : r] : 0);
    of_row.push_back(sum);
  }
  const std::string z = g.cast(x.zero, Type::kInt32);
  return g.add("Sub",
               {sums, g.add("Mul", {z, g.integers(of_row, {static_cast<int64_t>(of_row.size())}, Type::kInt32)})});
}

OnnxValue write_integers(GraphBuilder& g, const Node& node, const Product& op) {
  const Node& in = g.source()[node.inputs[0]];
  const OnnxValue x = op.conv ? g.channels_first(node.inputs[0]) : g.channels_last(node.inputs[0]);
  const bool shifted = op.conv && g.opset() < kFirstOpsetOfInt8Conv && byte_type(op.weight.dtype()) == Type::kInt8;
  const WeightCodes weight = write_codes(g, op, shifted);
  OnnxValue out{"", Type::kInt32, x.channels_first, "", ""};
  std::string sums = op.conv ? integer_conv(g, in, x, op, weight.name) : integer_matmul(g, in, x, op, weight.name);
  g.note(concat(op.conv ? "ConvInteger " : "MatMulInteger ", in.form.dtype, " x ", op.weight.dtype(), ", weight ",
                type_name(weight.stored)));
  if (op.integer_out) {
    if (op.bias.defined()) {
      std::vector<int64_t> bias;
      for (const double b : op.bias.elements()) bias.push_back(static_cast<int64_t>(b));
      const auto count = static_cast<int64_t>(bias.size());
      sums = g.add(
          "Add",
          {sums, g.integers(bias, x.channels_first ? std::vector<int64_t>{count, 1, 1} : std::vector<int64_t>{count},
                            Type::kInt32)});
    }
    out.name = sums;
    return out;
  }
  out.type = Type::kFloat;
  out.name = scaled(g, in, x, op, sums, out);
  return out;
}

// Whether only the weights are codes, in groups along rows that ONNX Runtime's MatMulNBits reads directly: since 1.23
// codes of more than 4 bits, too.
bool takes_nbits(const GraphBuilder& g, const Node& in, const Product& op) {
  const Tensor& w = op.weight;
  const ScaleMap map = w.scale_map();
  const int64_t group = map.col_group;
  return !g.qdq() && !op.conv && in.form.dtype == dtypes::fp32 && are_integers(w.dtype()) && map.zero == nullptr &&
         map.offset == nullptr && map.row_step != 0 && map.row_group == 1 && map.col_step == 1 && group >= 16 &&
         (group & (group - 1)) == 0 && w.dtype().info().qmin < 0 && w.dtype().kind() == DTypeKind::kInt &&
         (w.dtype().bits() <= 4 || g.opset() >= kFirstOpsetOfCast);
}

std::string write_nbits(GraphBuilder& g, const Node& node, const Product& op, std::string& operation) {
  const Tensor& w = op.weight;
  const int64_t o = w.rows(), k = w.cols(), group = w.scale_map().col_group, blocks = (k + group - 1) / group;
  const int bits = w.dtype().bits() <= 2 && g.opset() >= first_opset(Type::kInt2) ? 2 : w.dtype().bits() <= 4 ? 4 : 8;
  const int64_t middle = int64_t{1} << (bits - 1);
  const std::vector<int64_t> codes = codes_of(w);
  TensorValue packed{concat(g.layer(), ".weight"), Type::kUint8, {o, blocks, group * bits / 8}, {}};
  packed.bytes.assign(static_cast<size_t>(o * blocks * group * bits / 8), 0);
  for (int64_t r = 0; r < o; ++r)
    for (int64_t c = 0; c < blocks * group; ++c) {
      const int64_t code = c < k ? codes[static_cast<size_t>(r * k + c)] : 0, bit = (r * blocks * group + c) * bits;
      uint8_t& byte = packed.bytes[static_cast<size_t>(bit / 8)];
      byte = static_cast<uint8_t>(byte | static_cast<unsigned>(code + middle) << (bit % 8));
    }
  operation = concat("MatMulNBits of ", bits, " bits, groups of ", group);
  const std::string codes_name = g.tensor(std::move(packed));
  g.report().tensors.push_back({.name = codes_name,
                                .parameter = concat(g.layer(), ".weight"),
                                .shape = {o, blocks, group * bits / 8},
                                .type = concat(bits, " bits")});
  const std::string scales = g.tensor(tensor_of(concat(g.layer(), ".weight_scale"), {o, blocks}, blocks_of(w).scale));
  const OnnxValue x = g.channels_last(node.inputs[0]);
  return g.add("MatMulNBits", {x.name, codes_name, scales},
               {{"K", k}, {"N", o}, {"bits", int64_t{bits}}, {"block_size", group}, {"accuracy_level", int64_t{1}}},
               kMicrosoft);
}

// Whether float sums are exact in any order: codes times powers of two, bounded by 2^24.
bool exact_in_floats(const Node& x, const OnnxValue& stand, const Product& op) {
  if (!not_integers(x, stand, op).empty() || !stand.scale.empty()) return false;
  const std::vector<float> sx = numbers_or_one(x.params ? x.params->scale : nullptr),
                           sw = numbers_or_one(op.weight.quant() ? op.weight.quant()->scale : nullptr);
  const double bound =
      largest(x.form.dtype, true) * largest(op.weight.dtype(), true) * static_cast<double>(op.weight.cols());
  return power_of_two(sx[0]) && std::all_of(sw.begin(), sw.end(), power_of_two) && bound <= 0x1p24;
}

// x times the rows of w, which ONNX Runtime does not turn into a product with inputs of 8 bits.
std::string write_gemm(GraphBuilder& g, const Node& node, const Product& op, std::string x, const std::string& w) {
  const bool rows = node.form.sample.rank() > 1;  // Gemm takes matrices
  const std::string before = x;
  if (rows) x = g.add("Reshape", {x, g.integers({-1, op.weight.cols()}, {2})});
  const std::string y = g.add("Gemm", {x, w}, {{"transB", int64_t{1}}});
  if (!rows) return y;
  const std::string axes = g.add("Shape", {before}, {{"end", int64_t{-1}}});
  return g.add("Reshape", {y, g.add("Concat", {axes, g.integers({op.weight.rows()}, {1})}, {{"axis", int64_t{0}}})});
}

OnnxValue write_floats(GraphBuilder& g, const Node& node, const Product& op) {
  const Node& in = g.source()[node.inputs[0]];
  const OnnxValue codes = op.conv ? g.channels_first(node.inputs[0]) : g.channels_last(node.inputs[0]);
  std::string operation, values;
  bool dequantized = false;  // the inputs, by DequantizeLinear
  OnnxValue out{"", Type::kFloat, codes.channels_first, "", ""};
  if (takes_nbits(g, in, op)) {
    out.name = write_nbits(g, node, op, operation);
  } else {
    std::string x = in.form.dtype == dtypes::fp32 ? codes.name : values_of(g, in, codes);
    const std::vector<NodeValue>& nodes = g.file().nodes;
    dequantized = !nodes.empty() && nodes.back().outputs[0] == x && nodes.back().op == "DequantizeLinear";
    const std::string w = write_values(g, op, !dequantized, values);
    if (op.conv) {
      const float s = numbers_or_one(in.params ? in.params->scale : nullptr)[0];
      const float outside = static_cast<float>(op.conv->pad_value) * (in.form.dtype.is_code() ? s : 1.0f);
      out.name = write_conv(g, x, w, *op.conv, outside);
    } else {
      out.name = keeps_rows(g, op, !dequantized) ? write_gemm(g, node, op, x, w) : g.add("MatMul", {x, w});
    }
    operation = concat(op.conv ? "Conv" : "MatMul", " of floats, weight ", values);
  }
  const bool exact = exact_in_floats(in, codes, op);
  const double bound = (static_cast<double>(op.weight.cols()) + 2) * 0x1p-23;
  g.note(operation, exact ? Fate::kExact : Fate::kRounded, exact ? 0 : bound,
         exact ? "" : "sums of floats, in an order of the client's: off by at most this part of the sum of magnitudes");
  if (!op.bias.defined()) return out;
  std::vector<float> bias = op.bias.to_vector();
  // ONNX Runtime makes one Gemm of MatMul and Add, and from 1.23 on rounds its bias to int32 times both scales.
  const bool apart = dequantized && !op.conv;
  if (apart)
    for (float& each : bias) each = -each;
  out.name = g.add(apart ? "Sub" : "Add", {out.name, g.per_feature(bias, out)});
  return out;
}

}  // namespace

NodeAttributes conv_attributes(const Conv2dOptions& o, bool padded) {
  const auto list = [](const auto& a) { return std::vector<int64_t>(a.begin(), a.end()); };
  return {{"kernel_shape", list(o.kernel)},
          {"strides", list(o.stride)},
          {"dilations", list(o.dilation)},
          {"pads", padded ? std::vector<int64_t>{0, 0, 0, 0} : list(o.padding)},
          {"group", o.groups}};
}

std::string write_conv(GraphBuilder& g, const std::string& x, const std::string& w, const Conv2dOptions& options,
                       float outside) {
  const bool pads = has_padding(options) && outside != 0;
  return g.add("Conv", {pads ? padded(g, x, options, g.scalar(outside)) : x, w}, conv_attributes(options, pads));
}

OnnxValue write(GraphBuilder& g, const Node& node, const Product& op) {
  const Node& in = g.source()[node.inputs[0]];
  const OnnxValue& x = g.stand(node.inputs[0]);
  const std::string why = not_integers(in, x, op);
  if (op.integer_out && (g.qdq() || !why.empty())) {
    g.refuse("integer product", g.qdq() ? "compute: integer_out has no form qdq. Use --form integer" : why);
    return {"refused", Type::kInt32, x.channels_first, "", ""};
  }
  return why.empty() && !g.qdq() ? write_integers(g, node, op) : write_floats(g, node, op);
}

}  // namespace bitgrad::onnx
