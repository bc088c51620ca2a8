// Activation quantizers: the operations of docs/numerics.md section 2, or QuantizeLinear where it is equivalent.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/quant/scheme.h"
#include "export/onnx_graph.h"

namespace bitgrad::onnx {
namespace {

using inference::Node;
using inference::Quantize;
using Fate = ExportedTensor::Fate;

bool powers_of_two(const std::vector<float>& x) {
  return std::all_of(x.begin(), x.end(), [](float s) { return power_of_two(s) && 1.0f / s <= 0x1p126f; });
}

std::vector<float> inverses(std::vector<float> x) {
  for (float& each : x) each = 1.0f / each;
  return x;
}

std::vector<float> floats(const std::vector<int32_t>& x) { return {x.begin(), x.end()}; }

std::string codes(GraphBuilder& g, const std::string& rounded, int64_t lo, int64_t hi, Type type) {
  const std::string clipped =
      g.add("Clip", {rounded, g.scalar(static_cast<float>(lo)), g.scalar(static_cast<float>(hi))});
  return g.cast(clipped, type);
}

// condition ? 1 : -1 for signs, otherwise condition ? 1 : 0. Chosen as floats: ONNX Runtime has no Where of INT8 before
// 1.31.
std::string choice(GraphBuilder& g, const std::string& condition, bool sign) {
  const std::string chosen = g.add("Where", {condition, g.scalar(1.0f), g.scalar(sign ? -1.0f : 0.0f)});
  return g.cast(chosen, sign ? Type::kInt8 : Type::kUint8);
}

// QuantizeLinear or DequantizeLinear by one scale, or one per feature; zero points: 0 beyond those given.
std::string by_scales(GraphBuilder& g, const char* operation, const OnnxValue& x, const std::vector<float>& scale,
                      std::vector<int64_t> zeros, Type type) {
  zeros.resize(scale.size(), 0);
  const bool many = scale.size() > 1;
  const std::vector<int64_t> dims = many ? std::vector<int64_t>{std::ssize(scale)} : std::vector<int64_t>{};
  NodeAttributes axis;
  if (many) axis.emplace_back("axis", x.channels_first ? int64_t{1} : int64_t{-1});
  return g.add(operation, {x.name, g.numbers(scale, dims), g.integers(zeros, dims, type)}, axis);
}

// QuantizeLinear computes rint(x / s) + z, saturated to the type.
std::string quantize_linear(GraphBuilder& g, const OnnxValue& x, const Quantize& op, Type type) {
  const int64_t low = type == Type::kInt8 ? -128 : 0, high = low + 255;
  std::string q = by_scales(g, "QuantizeLinear", x, op.scale, {op.zero.begin(), op.zero.end()}, type);
  // Fewer than 8 bits: clip to the range of the codes.
  if (op.lo > low || op.hi < high) q = g.add("Clip", {q, g.integers({op.lo}, {}, type), g.integers({op.hi}, {}, type)});
  return q;
}

// Scales computed from a batch: absmax, symmetric and affine, per row or overall.
struct DynamicScales {
  std::string inverse, scale, zero;
};

DynamicScales found_scales(GraphBuilder& g, const OnnxValue& x, const Quantize& op) {
  const bool rows = op.spec.granularity.kind == Granularity::kToken;
  const std::string axes = rows ? g.integers({-1}, {1}) : "";
  const auto reduce = [&](const char* which, const std::string& of) {
    return g.add(which, rows ? std::vector<std::string>{of, axes} : std::vector<std::string>{of},
                 {{"keepdims", int64_t{rows}}});
  };
  const DTypeInfo& info = op.spec.dtype.info();
  const auto qmin = static_cast<float>(info.qmin), qmax = static_cast<float>(info.qmax);
  const std::string eps = g.scalar(op.spec.eps.value_or(0x1p-126f)), nil = g.scalar(0.0f);
  DynamicScales f;
  if (op.spec.scheme == "absmax") {
    f.scale = g.add("Div", {reduce("ReduceMax", g.add("Abs", {x.name})), g.scalar(static_cast<float>(op.hi))});
  } else {
    const std::string lo = g.add("Min", {reduce("ReduceMin", x.name), nil}),
                      hi = g.add("Max", {reduce("ReduceMax", x.name), nil});
    if (op.spec.scheme == "symmetric") {
      f.scale = g.add("Div", {g.add("Max", {g.add("Neg", {lo}), hi}), g.scalar((qmax - qmin) / 2)});
    } else {
      f.scale = g.add("Div", {g.add("Sub", {hi, lo}), g.scalar(qmax - qmin)});
      const std::string s = g.add("Max", {f.scale, eps});
      const std::string z = g.add("Sub", {g.scalar(qmin), g.add("Round", {g.add("Div", {lo, s})})});
      f.zero = g.add("Clip", {z, g.scalar(qmin), g.scalar(qmax)});
    }
  }
  f.scale = g.add("Max", {f.scale, eps});
  // Abs does not change the value. Without it ONNX Runtime turns x * (1 / s) into x / s, which rounds otherwise.
  f.inverse = g.add("Abs", {g.add("Div", {g.scalar(1.0f), f.scale})});
  return f;
}

OnnxValue write_dynamic(GraphBuilder& g, const OnnxValue& x, const Quantize& op, OnnxValue out) {
  const Granularity::Kind kind = op.spec.granularity.kind;
  const QuantSpec& spec = op.spec;
  const bool known = spec.scheme == "absmax" || spec.scheme == "symmetric" || spec.scheme == "affine";
  const std::string_view other = other_option(spec, {"rounding", "eps", "div"});
  if (!known || op.rule != CodeRule::kInverse || (kind != Granularity::kToken && kind != Granularity::kTensor) ||
      !other.empty()) {
    g.refuse("quantize",
             concat("scheme ", spec.scheme, ", granularity ", spec.granularity, other.empty() ? "" : ", with ", other,
                    ", finds its scales from each batch. Exported are absmax, symmetric and affine per "
                    "tensor or token, and any scheme with an observer or a learned step"));
    return out;
  }
  out.scale_of_rows = kind == Granularity::kToken;
  if (x.channels_first && out.scale_of_rows) {
    g.refuse("quantize", "finds the scales of each pixel from the batch. Use granularity: tensor");
    return out;
  }
  const DynamicScales f = found_scales(g, x, op);
  std::string u = g.add("Round", {g.add("Mul", {x.name, f.inverse})});
  if (!f.zero.empty()) u = g.add("Add", {u, f.zero});
  out.name = codes(g, u, op.lo, op.hi, out.type);
  out.scale = f.scale;
  out.zero = f.zero;
  g.note_codes(concat("scales of each ", kind == Granularity::kToken ? "row" : "batch", ", ", spec.dtype));
  return out;
}

// The value before rint; empty if the rule cannot be expressed.
std::string before_rounding(GraphBuilder& g, const OnnxValue& x, const Quantize& op) {
  switch (op.rule) {
    case CodeRule::kInverse:
      return g.add("Mul", {x.name, g.per_feature(inverses(op.scale), x)});
    case CodeRule::kDivide:
      return op.scale.empty() ? x.name : g.add("Div", {x.name, g.per_feature(op.scale, x)});
    case CodeRule::kOffset: {
      const std::string moved = op.shift.empty() ? x.name : g.add("Sub", {x.name, g.per_feature(op.shift, x)});
      return op.scale.empty() ? moved : g.add("Div", {moved, g.per_feature(op.scale, x)});
    }
    case CodeRule::kTimes:
      return g.add("Mul", {x.name, g.per_feature(op.scale, x)});
    default:
      return "";
  }
}

bool is_quantize_linear(const Quantize& op, Type type) {
  if (op.scale.empty() || !op.shift.empty()) {
    const bool no_shift = std::all_of(op.shift.begin(), op.shift.end(), [](float m) { return m == 0; });
    if (op.scale.empty() || !no_shift) return false;
  }
  const int64_t low = type == Type::kInt8 ? -128 : 0;
  for (const int32_t z : op.zero)
    if (z < low || z > low + 255) return false;
  return op.rule == CodeRule::kDivide || op.rule == CodeRule::kOffset || op.rule == CodeRule::kInverse;
}

}  // namespace

OnnxValue write(GraphBuilder& g, const Node& node, const Quantize& op) {
  const OnnxValue x = g.stand(node.inputs[0]);
  OnnxValue out{"", byte_type(op.spec.dtype), x.channels_first, "", ""};
  if (op.dynamic) return write_dynamic(g, x, op, out);
  if (op.rule == CodeRule::kSign || op.rule == CodeRule::kPositive) {
    const bool sign = op.rule == CodeRule::kSign;
    out.name = choice(g, g.add(sign ? "GreaterOrEqual" : "Greater", {x.name, g.scalar(0.0f)}), sign);
    g.note_codes(concat(sign ? "sign, " : "step, ", op.spec.dtype));
    return out;
  }
  const bool linear = is_quantize_linear(op, out.type),
             exact = linear && (op.rule != CodeRule::kInverse || powers_of_two(op.scale));
  if (exact || (linear && g.qdq())) {
    out.name = quantize_linear(g, x, op, out.type);
    if (exact)
      g.note_codes(concat("QuantizeLinear ", op.spec.dtype), op.scale);
    else
      g.note(concat("QuantizeLinear ", op.spec.dtype), Fate::kRounded, 1,
             "x / s instead of x * (1 / s): where x is within a rounding of the middle of two codes, the code may be "
             "the other one. Set div: true, or pow2: true");
    return out;
  }
  std::string u = before_rounding(g, x, op);
  if (u.empty()) {
    g.refuse("quantize", concat("scheme ", op.spec.scheme, " of ", op.spec.dtype,
                                " has no such operations. Use fixed, binary, lsq, or absmax with an observer"));
    return out;
  }
  u = g.add("Round", {u});
  if (std::any_of(op.zero.begin(), op.zero.end(), [](int32_t z) { return z != 0; }))
    u = g.add("Add", {u, g.per_feature(floats(op.zero), x)});
  out.name = codes(g, u, op.lo, op.hi, out.type);
  g.note_codes(concat("Round, Clip to ", op.spec.dtype), op.scale);
  return out;
}

OnnxValue write(GraphBuilder& g, const Node& node, const inference::Requantize& op) {
  const OnnxValue x = g.stand(node.inputs[0]);
  OnnxValue out{"", byte_type(op.spec.dtype), x.channels_first, "", ""};
  std::string u = g.add("Round", {g.add("Mul", {g.to_float(x.name), g.per_feature(op.factor, x)})});
  if (op.zero != 0) u = g.add("Add", {u, g.scalar(static_cast<float>(op.zero))});
  out.name = codes(g, u, op.lo, op.hi, out.type);
  g.note(concat("INT32 to ", op.spec.dtype));
  return out;
}

std::string levels_of(GraphBuilder& g, DType dtype, const std::string& codes) {
  const std::vector<float>& levels = dtype.info().levels;
  return g.add("Gather", {g.numbers(levels, {std::ssize(levels)}), g.cast(codes, Type::kInt32)});
}

std::string values_of(GraphBuilder& g, const Node& node, const OnnxValue& codes) {
  if (!codes.scale.empty()) {
    std::string v = g.to_float(codes.name);
    if (!codes.zero.empty()) v = g.add("Sub", {v, codes.zero});
    return g.add("Mul", {v, codes.scale});
  }
  const QuantParams* params = node.params.get();
  const bool plain = params == nullptr || params->scale == nullptr;
  const std::vector<float> s = plain ? std::vector<float>{1.0f} : params->scale->to_vector();
  if (node.form.dtype.kind() == DTypeKind::kCodebook)
    return g.add("Mul", {levels_of(g, node.form.dtype, codes.name), g.per_feature(s, codes)});
  const bool int32 = node.form.dtype == dtypes::int32;
  if (g.qdq() && !int32 && (plain || params->offset == nullptr)) {
    const std::vector<double> zeros = plain || !params->zero ? std::vector<double>() : params->zero->elements();
    return by_scales(g, "DequantizeLinear", codes, s, {zeros.begin(), zeros.end()}, codes.type);
  }
  std::string v = g.to_float(codes.name);
  if (!plain && params->zero) v = g.add("Sub", {v, g.per_feature(params->zero->to_vector(), codes)});
  if (!plain) v = g.add("Mul", {v, g.per_feature(s, codes)});
  if (!plain && params->offset) v = g.add("Add", {v, g.per_feature(params->offset->to_vector(), codes)});
  return v;
}

OnnxValue write(GraphBuilder& g, const Node& node, const inference::Dequantize&) {
  OnnxValue x = g.stand(node.inputs[0]);
  g.note("dequantize");
  return {values_of(g, g.source()[node.inputs[0]], x), Type::kFloat, x.channels_first, "", ""};
}

}  // namespace bitgrad::onnx
