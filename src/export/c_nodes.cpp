// C code of all operations except products.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "export/c_writer.h"

namespace bitgrad::c_target {
namespace {

std::string loops(int64_t rows, int64_t columns) {
  return concat("    for (p = 0; p < ", rows, "; ++p) for (j = 0; j < ", columns, "; ++j) {\n");
}

// Whether dividing by each is multiplying by its inverse, bit for bit.
bool powers_of_two(const std::vector<float>& x) {
  return std::all_of(x.begin(), x.end(), [](float each) {
    int exponent = 0;
    return std::frexp(each, &exponent) == 0.5f && exponent > -99 && exponent < 99;
  });
}

// Multiplies u by one of `factors`: returns the exponent of one power of two, which to_code adds, and otherwise writes
// to text.
int factor_of_code(const std::vector<float>& factors, const std::string& number, std::string& text) {
  if (factors.size() == 1 && powers_of_two(factors)) return std::ilogb(factors[0]);
  text += concat("      u = u * ", number, ";\n");
  return 0;
}

}  // namespace

void Writer::begin_result(Value result) {
  body_ << "  {\n    int32_t p, j;\n";
  if (held(result) == Held::kBits)
    body_ << "    for (p = 0; p < " << plan_.places[static_cast<size_t>(result)].elements << "; ++p) " << buffer(result)
          << "[p] = 0;\n";
}

void Writer::each(const Node& node, const std::string& text, const std::string& value, std::string operation) {
  begin_result(own());
  body_ << loops(node.form.sample_rows(), node.form.features()) << text << "      " << store(own(), "p", "j", value)
        << "\n    }\n  }\n";
  note(std::move(operation));
}

void Writer::write(const Node&, const inference::Input&) {}

void Writer::write(const Node& node, const inference::Quantize& op) {
  if (const std::string why = quantize_refusal(op); !why.empty()) return refuse("quantize", why);
  std::string text = concat("      float u = ", load(node.inputs[0], "p", "j"), ";\n"), code;
  std::vector<float> inverse = op.scale;
  for (float& s : inverse) s = 1.0f / s;
  if (op.rule == CodeRule::kSign) {
    code = "u >= 0.0f ? 1 : -1";
  } else if (op.rule == CodeRule::kPositive) {
    code = "u > 0.0f ? 1 : 0";
  } else {
    int k = 0;
    if (op.rule == CodeRule::kInverse) k = factor_of_code(inverse, numbers("s", inverse, "j"), text);
    if (op.rule == CodeRule::kOffset && !op.shift.empty())
      text += concat("      u = u - ", numbers("m", op.shift, "j"), ";\n");
    if ((op.rule == CodeRule::kDivide || op.rule == CodeRule::kOffset) && !op.scale.empty()) {
      if (powers_of_two(op.scale))
        k = factor_of_code(inverse, numbers("s", inverse, "j"), text);
      else
        text += concat("      u = u / ", numbers("s", op.scale, "j"), ";\n");
    }
    if (op.rule == CodeRule::kTimes) k = factor_of_code(op.scale, numbers("s", op.scale, "j"), text);
    std::string zero = op.zero.empty() ? "0" : std::to_string(op.zero[0]);
    if (op.zero.size() > 1) {
      array("int32_t", concat("z", now_), std::vector<int32_t>(op.zero.begin(), op.zero.end()));
      zero = concat("z", now_, "[j]");
    }
    code = concat("to_code(u, ", k, ", ", zero, ", ", op.lo, ", ", op.hi, ")");
    rounds_ = true;
  }
  each(node, text, code, concat("quantize ", op.spec.dtype));
}

void Writer::write(const Node& node, const inference::Requantize& op) {
  const std::string text = concat("      float u = (float)", load(node.inputs[0], "p", "j"), ";\n      u = u * ",
                                  numbers("s", op.factor, "j"), ";\n");
  rounds_ = true;
  each(node, text, concat("to_code(u, 0, ", op.zero, ", ", op.lo, ", ", op.hi, ")"),
       concat("int32 to ", op.spec.dtype));
}

void Writer::write(const Node& node, const inference::Dequantize&) {
  const Node& in = graph_[node.inputs[0]];
  if ((!in.params && in.form.scales) || in.form.dtype.kind() == DTypeKind::kCodebook)
    return refuse("dequantize", "scales that are found from each batch, and levels of a codebook, are not known");
  std::string text = concat("      float u = (float)", load(node.inputs[0], "p", "j"), ";\n");
  if (in.params && in.params->zero)
    text += concat("      u = u - ", numbers("z", in.params->zero->to_vector(), "j"), ";\n");
  if (in.params && in.params->scale)
    text += concat("      u = u * ", numbers("s", in.params->scale->to_vector(), "j"), ";\n");
  if (in.params && in.params->offset)
    text += concat("      u = u + ", numbers("m", in.params->offset->to_vector(), "j"), ";\n");
  each(node, text, "u", "dequantize");
}

void Writer::write(const Node& node, const inference::Normalize& op) {
  const std::string text =
      concat("      float u = ", load(node.inputs[0], "p", "j"), ";\n      u = u - ", numbers("m", op.mean, "j"),
             ";\n      u = u * ", numbers("i", op.inv, "j"), ";\n      u = u * ", numbers("g", op.gamma, "j"),
             ";\n      u = u + ", numbers("b", op.beta, "j"), ";\n");
  each(node, text, "u", "norm");
}

void Writer::write(const Node& node, const inference::Pointwise& op) {
  const bool integers = held(own()) == Held::kInt32;
  const std::string x = concat("      const ", type_of(held(own())), " u = ", load(node.inputs[0], "p", "j"), ";\n");
  std::string y;
  if (op.op == UnaryOp::relu) y = integers ? "u > 0 ? u : 0" : "u > 0.0f ? u : 0.0f";
  if (op.op == UnaryOp::hardtanh) y = "u < -1.0f ? -1.0f : u > 1.0f ? 1.0f : u";
  if (op.op == UnaryOp::relu2) y = "u > 0.0f ? u * u : 0.0f";
  if (y.empty())
    return refuse(std::string(unary_name(op.op)), "C without a library has no such function. Use relu or hardtanh");
  each(node, x, y, std::string(unary_name(op.op)));
}

void Writer::write(const Node& node, const inference::MaxPool& op) {
  const PoolOptions& o = op.options;
  const Shape& in = graph_[node.inputs[0]].form.sample;
  if (held(own()) == Held::kBits && held(node.inputs[0]) == Held::kBits) return pool_signs(node, op);
  const std::string type = held(own()) == Held::kFloat ? "float" : "int32_t";
  const std::string value = concat("(", type, ")", load(node.inputs[0], concat("y * ", in[1], " + x"), "j"));
  const std::string text = concat(
      "      const int32_t y0 = p / ", node.form.sample[1], " * ", o.stride[0], " - ", o.padding[0], ", x0 = p % ",
      node.form.sample[1], " * ", o.stride[1], " - ", o.padding[1], ";\n      int32_t y, x, any = 0;\n      ", type,
      " best = 0;\n      for (y = y0; y < y0 + ", o.size[0], "; ++y) for (x = x0; x < x0 + ", o.size[1],
      "; ++x)\n        if (y >= 0 && y < ", in[0], " && x >= 0 && x < ", in[1], ") {\n          const ", type,
      " u = ", value, ";\n          if (!any || u > best) best = u;\n          any = 1;\n        }\n");
  each(node, text, "best", "max_pool");
}

// The largest of signs is one of their bits: whole words at once.
void Writer::pool_signs(const Node& node, const inference::MaxPool& op) {
  const PoolOptions& o = op.options;
  const Shape& in = graph_[node.inputs[0]].form.sample;
  const int64_t words = (node.form.features() + 31) / 32;
  body_ << "  {\n    int32_t p, j, y, x;\n"
        << loops(node.form.sample_rows(), words) << "      const int32_t y0 = p / " << node.form.sample[1] << " * "
        << o.stride[0] << " - " << o.padding[0] << ", x0 = p % " << node.form.sample[1] << " * " << o.stride[1] << " - "
        << o.padding[1] << ";\n      uint32_t any = 0;\n      for (y = y0; y < y0 + " << o.size[0]
        << "; ++y) for (x = x0; x < x0 + " << o.size[1] << "; ++x)\n        if (y >= 0 && y < " << in[0]
        << " && x >= 0 && x < " << in[1]
        << ") any |= " << element(node.inputs[0], concat("(y * ", in[1], " + x) * ", words, " + j")) << ";\n      "
        << element(own(), concat("p * ", words, " + j")) << " = any;\n    }\n  }\n";
  note("max_pool");
}

void Writer::write(const Node& node, const inference::AvgPool& op) {
  const Shape& in = graph_[node.inputs[0]].form.sample;
  PoolOptions o = op.options;
  if (op.whole_image) o = {{in[0], in[1]}, {1, 1}, {0, 0, 0, 0}};
  const int64_t across = op.whole_image ? 1 : node.form.sample[1];
  const std::string text = concat("      const int32_t y0 = p / ", across, " * ", o.stride[0], " - ", o.padding[0],
                                  ", x0 = p % ", across, " * ", o.stride[1], " - ", o.padding[1],
                                  ";\n      int32_t y, x, n = 0;\n      float u = 0.0f;\n      for (y = y0; y < y0 + ",
                                  o.size[0], "; ++y) for (x = x0; x < x0 + ", o.size[1],
                                  "; ++x)\n        if (y >= 0 && y < ", in[0], " && x >= 0 && x < ", in[1],
                                  ") {\n          u = u + ", load(node.inputs[0], concat("y * ", in[1], " + x"), "j"),
                                  ";\n          ++n;\n        }\n      u = u * (1.0f / (float)n);\n");
  each(node, text, "u", "mean of pixels");
}

void Writer::write(const Node& node, const inference::Shortcut& op) {
  const Shape& in = graph_[node.inputs[0]].form.sample;
  const int64_t before = (op.out - in[2]) / 2, across = node.form.sample[1];
  const std::string row = concat("p / ", across, " * ", op.stride[0] * in[1], " + p % ", across, " * ", op.stride[1]);
  each(node, concat("      const int32_t from = j - ", before, ";\n"),
       concat("from >= 0 && from < ", in[2], " ? ", load(node.inputs[0], row, "from"), " : 0.0f"), "shortcut");
}

void Writer::write(const Node& node, const inference::Prelu& op) {
  each(node, concat("      const float u = ", load(node.inputs[0], "p", "j"), ";\n"),
       concat("u > 0.0f ? u : ", numbers("s", op.slope, "j"), " * u"), "prelu");
}

void Writer::write(const Node& node, const inference::Shift& op) {
  each(node, "", concat(load(node.inputs[0], "p", "j"), " + ", numbers("b", op.shift, "j")), "shift");
}

void Writer::write(const Node&, const inference::RowNorm& op) {
  refuse(op.centered ? "layer_norm" : "rms_norm", "C without a library has no square root. Use batch_norm");
}

void Writer::write(const Node& node, const inference::Reshape&) {
  const int64_t from = features(node.inputs[0]);
  const std::string index = concat("(p * ", node.form.features(), " + j)");
  each(node, "", load(node.inputs[0], concat(index, " / ", from), concat("(", index, " % ", from, ")")), "reshape");
}

void Writer::write(const Node& node, const inference::Join& op) {
  if (op.kind == inference::JoinKind::kConcat) {
    int64_t offset = 0;
    for (const Value v : node.inputs) {
      body_ << "  {\n    int32_t p, j;\n"
            << loops(node.form.sample_rows(), features(v)) << "      "
            << store(own(), "p", concat("(j + ", offset, ")"), load(v, "p", "j")) << "\n    }\n  }\n";
      offset += features(v);
    }
    return note("join");
  }
  std::string text = concat("      float u = ", load(node.inputs[0], "p", "j"), ";\n");
  for (size_t i = 1; i < node.inputs.size(); ++i)
    text += concat("      u = u ", op.kind == inference::JoinKind::kAdd ? '+' : '*', ' ',
                   load(node.inputs[i], "p", "j"), ";\n");
  each(node, text, "u", "join");
}

}  // namespace bitgrad::c_target
