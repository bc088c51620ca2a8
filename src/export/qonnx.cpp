// A model for FINN: QONNX (Pappalardo et al. 2022, arXiv 2206.07527; github.com/fastmachinelearning/qonnx). All values
// are floats; Quant and BipolarQuant of domain qonnx.custom_op.general mark which of them are codes, including weights.
//   Quant: y = (clamp(rint(x / s + z)) - z) * s;  BipolarQuant: y = x >= 0 ? s : -s
#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/quant/quantizer.h"
#include "export/onnx_graph.h"
#include "export/targets.h"
#include "io/onnx_file.h"

namespace bitgrad {
namespace {

using inference::Node;
using onnx::GraphBuilder;
using onnx::OnnxValue;
using Fate = ExportedTensor::Fate;

constexpr const char* kDomain = "qonnx.custom_op.general";

// Bits, sign and narrowness of a range of codes; bits 0: no such range.
struct QuantRange {
  int bits = 0;
  bool is_signed = false, narrow = false;
};

QuantRange range_of(int64_t lo, int64_t hi) {
  for (int bits = 1; bits <= 8; ++bits) {
    const int64_t half = int64_t{1} << (bits - 1);
    if (lo == 0 && hi == 2 * half - 1) return {bits, false, false};
    if (lo == 0 && hi == 2 * half - 2 && bits > 1) return {bits, false, true};
    if (bits > 1 && hi == half - 1 && (lo == -half || lo == -half + 1)) return {bits, true, lo == -half + 1};
  }
  return {};
}

std::string quant(GraphBuilder& g, const std::string& x, const std::string& scale, const std::string& zero,
                  const QuantRange& range) {
  return g.add("Quant", {x, scale, zero, g.scalar(static_cast<float>(range.bits))},
               {{"signed", int64_t{range.is_signed}},
                {"narrow", int64_t{range.narrow}},
                {"rounding_mode", std::string("ROUND")}},
               kDomain);
}

OnnxValue write_quantizer(GraphBuilder& g, const Node& node, const inference::Quantize& op) {
  OnnxValue y = g.stand(node.inputs[0]);
  const auto refused = [&](const std::string& why) {
    g.refuse(concat("quantize ", op.spec.dtype), why);
    return y;
  };
  if (op.dynamic) return refused("its scales are found from each batch. Give it an observer, or scheme fixed or lsq");
  if (op.rule == CodeRule::kSign) {
    y.name = g.add("BipolarQuant", {y.name, g.scalar(1.0f)}, {}, kDomain);
    g.note("BipolarQuant");
    return y;
  }
  const QuantRange range = range_of(op.lo, op.hi);
  const bool shifted = std::any_of(op.shift.begin(), op.shift.end(), [](float m) { return m != 0; });
  const bool divides = op.rule == CodeRule::kInverse || op.rule == CodeRule::kDivide || op.rule == CodeRule::kOffset;
  if (range.bits == 0 || shifted || !divides)
    return refused("Quant has no real offset and no other rounding rule. Use fixed, lsq, or absmax with an observer");
  const std::vector<float> zero(op.zero.begin(), op.zero.end());
  const bool zeros = std::all_of(zero.begin(), zero.end(), [](float z) { return z == 0; });
  const bool exact =
      zeros && (op.rule != CodeRule::kInverse || std::all_of(op.scale.begin(), op.scale.end(), onnx::power_of_two));
  y.name = quant(g, y.name, g.per_feature(op.scale.empty() ? std::vector<float>{1.0f} : op.scale, y),
                 zero.empty() ? g.scalar(0.0f) : g.per_feature(zero, y), range);
  g.note(concat("Quant of ", range.bits, " bits"), exact ? Fate::kExact : Fate::kRounded, exact ? 0 : 1,
         exact ? ""
               : "rint(x / s + z) instead of rint(x * (1 / s)) + z: where x is within a rounding of the middle of "
                 "two codes, the code may be the other one. Set div: true, or pow2: true");
  return y;
}

// Writes the weight as floats followed by its quantizer; empty: refused.
std::string write_quantized_weight(GraphBuilder& g, const inference::Product& op, std::string& form) {
  const Tensor& w = op.weight;
  const int64_t o = w.rows(), k = w.cols();
  const std::vector<int64_t> dims = onnx::weight_dims(op);
  const std::vector<float> values =
      reordered(w.dtype().is_code() ? dequantize_tensor(w).to_vector() : w.to_vector(), o, k, op.conv);
  const std::string name = g.tensor(onnx::tensor_of(concat(g.layer(), ".weight"), dims, values));
  ExportedTensor row{.name = name, .parameter = concat(g.layer(), ".weight"), .shape = Shape(dims), .type = "FLOAT"};
  form = "floats";
  std::string out = name;
  if (w.dtype().is_code()) {
    const ScaleMap map = w.scale_map();
    const DTypeInfo& info = w.dtype().info();
    const QuantRange range = range_of(info.qmin, info.qmax);
    const bool sign = info.kind == DTypeKind::kSign;
    if ((!map.per_tensor() && !map.per_row()) || map.offset != nullptr || (range.bits == 0 && !sign) ||
        info.kind == DTypeKind::kCodebook)
      return "";
    const bool many = map.per_row() && !map.per_tensor();
    const Blocks blocks = blocks_of(w);
    std::vector<float> z(blocks.zero.begin(), blocks.zero.end());
    z.resize(blocks.scale.size(), 0.0f);
    const std::vector<int64_t> of_scale = !many     ? std::vector<int64_t>{}
                                          : op.conv ? std::vector<int64_t>{o, 1, 1, 1}
                                                    : std::vector<int64_t>{1, o};
    const std::string scale = g.tensor(onnx::tensor_of(concat(g.layer(), ".weight_scale"), of_scale, blocks.scale));
    out = sign
              ? g.add("BipolarQuant", {name, scale}, {}, kDomain)
              : quant(g, name, scale, g.tensor(onnx::tensor_of(concat(g.layer(), ".weight_zero"), of_scale, z)), range);
    form = sign ? "BipolarQuant" : concat("Quant of ", range.bits, " bits");
    row.type = sign ? "BIPOLAR" : concat(info.qmin < 0 ? "INT" : "UINT", range.bits);
  }
  g.report().tensors.push_back(std::move(row));
  return out;
}

OnnxValue write_float_product(GraphBuilder& g, const Node& node, const inference::Product& op) {
  OnnxValue y = op.conv ? g.channels_first(node.inputs[0]) : g.channels_last(node.inputs[0]);
  std::string form;
  const std::string weight = op.integer_out ? "" : write_quantized_weight(g, op, form);
  if (weight.empty()) {
    g.refuse(concat("product with ", op.weight.dtype()),
             op.integer_out
                 ? "QONNX has values, not integers. Use compute: packed"
                 : "Quant of weights has a scale for a tensor or an output. Use granularity: channel, without offsets");
    return y;
  }
  if (op.conv) {
    y.name = onnx::write_conv(g, y.name, weight, *op.conv, static_cast<float>(op.conv->pad_value));
  } else {
    y.name = g.add("MatMul", {y.name, weight});
  }
  if (op.bias.defined()) y.name = g.add("Add", {y.name, g.per_feature(op.bias.to_vector(), y)});
  g.note(concat(op.conv ? "Conv, weight " : "MatMul, weight ", form), Fate::kRounded,
         (static_cast<double>(op.weight.cols()) + 2) * 0x1p-23,
         "sums of floats (of integers below 2^24 they are exact): off by at most this part of the sum of magnitudes");
  return y;
}

OnnxValue write_node(GraphBuilder& g, const Node& node) {
  if (const auto* op = std::get_if<inference::Quantize>(&node.operation)) return write_quantizer(g, node, *op);
  if (const auto* op = std::get_if<inference::Product>(&node.operation)) return write_float_product(g, node, *op);
  if (std::holds_alternative<inference::Embedding>(node.operation) ||
      std::holds_alternative<inference::Attention>(node.operation)) {
    g.refuse("layer of sequences", "FINN has no such layer. Use --format onnx");
    return g.stand(node.inputs[0]);
  }
  if (std::holds_alternative<inference::Dequantize>(node.operation)) {
    g.note("values, unchanged");
    return g.stand(node.inputs[0]);
  }
  if (std::holds_alternative<inference::Requantize>(node.operation)) {
    g.refuse("requantize", "QONNX has values, not integers. Use compute: packed");
    return g.stand(node.inputs[0]);
  }
  return onnx::write_node(g, node);
}

}  // namespace

ExportReport export_target_qonnx(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const inference::Graph graph = inference::lowered(*source.model, source.spec->input);
  ExportReport report{.variant = "qonnx"};
  GraphBuilder g(graph, spec, report);
  return onnx::write_model(g, source, path, spec, write_node);
}

}  // namespace bitgrad
