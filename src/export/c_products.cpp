// C code of products: the loops, their weights, and the conversion of sums to values or codes.
#include "export/c_writer.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "export/targets.h"

namespace bitgrad::c_target {
namespace {

std::string element_of_weight(const WeightForm& w) {
  if (w.held != Held::kInt32) return "(int32_t)w[i]";
  const int per = 32 / w.bits;
  const std::string raw =
      concat("(w[i / ", per, "] >> (", w.bits, " * (uint32_t)(i % ", per, "))) & ", (1 << w.bits) - 1, "U");
  if (w.code == WeightForm::Code::kSign) return concat("(int32_t)(2U * (", raw, ")) - 1");
  if (w.code == WeightForm::Code::kUnsigned) return concat("(int32_t)(", raw, ")");
  const int half = 1 << (w.bits - 1);
  return concat("(int32_t)((", raw, ") ^ ", half, "U) - ", half);
}

std::string weight_name(const WeightForm& w) {
  if (w.held == Held::kFloat) return "float";
  if (w.held == Held::kInt8) return "int8";
  if (w.held == Held::kUint8) return "uint8";
  const char* const kind = w.code == WeightForm::Code::kSign       ? "sign"
                           : w.code == WeightForm::Code::kUnsigned ? "u"
                                                                   : "s";
  return concat("packed_", kind, w.bits);
}

std::string held_name(Held held) {
  constexpr const char* kNames[] = {"float", "int32", "int8", "uint8", "signs"};
  return kNames[static_cast<size_t>(held)];
}

// The loop over the taps of a window. `inside` and `outside` are statements that add to sum, for taps within the image
// and in its padding; `whole` returns the sum of a window within the image whose rows are contiguous, added in the same
// order.
std::string tap_loop(const std::string& whole, const std::string& inside, const std::string& outside) {
  return "  int32_t ky, kx;\n"
         "  const int32_t y0 = p / c->ow * c->sy - c->top, x0 = p % c->ow * c->sx - c->left;\n"
         "  if (c->groups == 1 && c->dx == 1 && x0 >= 0 && x0 + c->kw <= c->w && y0 >= 0 &&\n"
         "      y0 + (c->kh - 1) * c->dy < c->h) {\n" +
         whole +
         "  }\n"
         "  for (ky = 0; ky < c->kh; ++ky)\n"
         "    for (kx = 0; kx < c->kw; ++kx) {\n"
         "      const int32_t y = y0 + ky * c->dy, xx = x0 + kx * c->dx;\n"
         "      const int32_t tap = (j * c->kh + ky) * c->kw + kx;\n"
         "      if (y >= 0 && y < c->h && xx >= 0 && xx < c->w) {\n" +
         inside + "      } else if (c->pad != 0) {\n" + outside + "      }\n    }\n  return sum;\n}\n\n";
}

}  // namespace

std::string type_of(Held held) {
  constexpr const char* kTypes[] = {"float", "int32_t", "int8_t", "uint8_t", "uint32_t"};
  return kTypes[static_cast<size_t>(held)];
}

std::string c_guards() {
  return "#include <float.h>\n\n"
         "#if FLT_RADIX != 2 || FLT_MANT_DIG != 24 || FLT_MAX_EXP != 128\n#error \"float must be IEEE 754 "
         "binary32\"\n#endif\n"
         "#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0\n"
         "#error \"float must be computed in float: FLT_EVAL_METHOD 0\"\n#endif\n"
         "#ifdef __FAST_MATH__\n#error \"-ffast-math changes results\"\n#endif\n"
         "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
         "#elif defined(__GNUC__)\n#pragma GCC optimize(\"fp-contract=off\")\n#endif\n\n";
}

std::string c_head(const std::string& header) {
  return "/* Written by bitgrad export. C99, no library, no memory but the arrays below. */\n#include \"" + header +
         "\"\n\n" + c_guards();
}

std::string c_bits_of() {
  return "static uint32_t bits_of(float f) {\n  union {\n    float f;\n    uint32_t bits;\n  } x;\n  x.f = f;\n"
         "  return x.bits;\n}\n\n";
}

std::string c_to_code() {
  return "/* u * 2^k to the nearest integer, of two the even one, then + z, within [lo, hi]; |k| < 100. By the bits of "
         "the float:\n   a core may have no unit for floats. */\n"
         "static int32_t to_code(float u, int32_t k, int32_t z, int32_t lo, int32_t hi) {\n"
         "  const uint32_t bits = bits_of(u), m = (bits & 0x7fffffU) | 0x800000U;\n"
         "  const int32_t e = (int32_t)((bits >> 23) & 255U) + k;\n"
         "  int32_t r = 0;\n"
         "  if (e > 142) {\n    r = 65536;\n  } else if (e >= 126) {\n"
         "    const uint32_t s = (uint32_t)(150 - e);\n"
         "    r = (int32_t)((m + ((1U << (s - 1U)) - 1U) + ((m >> s) & 1U)) >> s);\n  }\n"
         "  r = ((bits >> 31) != 0U ? -r : r) + z;\n"
         "  return r <= lo ? lo : r >= hi ? hi : r;\n}\n\n";
}

std::string c_common(bool bits, bool rounds) {
  std::string out;
  if (bits || rounds) out += c_bits_of();
  out +=
      "/* A product: an image [h,w,c], windows of kh x kw pixels at oh * ow places, o outputs; a vector is one pixel. "
      "*/\n"
      "struct conv {\n  int32_t h, w, c, oh, ow, o, kh, kw, sy, sx, dy, dx, top, left, groups, pad;\n};\n\n";
  if (rounds) out += c_to_code();
  return out;
}

namespace {

// `static int32_t|float dot_NAME(...)` computes one sum of a product: output channel j of pixel p. dot_name returns
// NAME.
std::string dot_name(Held x, const WeightForm& w) { return concat("dot_", held_name(x), '_', weight_name(w)); }

std::string dot_function(Held x, const WeightForm& w) {
  const bool float_x = x == Held::kFloat, float_w = w.held == Held::kFloat, floats = float_x || float_w;
  const std::string sum = floats ? "float" : "int32_t";
  const std::string code = concat("(", float_w ? "" : element_of_weight(w), " - zw)");
  const std::string each = float_w ? "w[i]" : floats ? concat("(float)", code) : code;
  const std::string type = w.held == Held::kInt32 ? "uint32_t" : type_of(w.held);
  std::string out =
      concat("static ", sum, ' ', dot_name(x, w), "(const ", type_of(x), " *x, const ", type,
             " *w, const struct conv *c, int32_t p, int32_t j, int32_t zx, int32_t zw) {\n",
             "  const int32_t cg = c->c / c->groups, first = j / (c->o / c->groups) * cg;\n  int32_t k;\n  ", sum,
             " sum = 0;\n");
  if (float_x) out += "  (void)zx;\n";
  if (float_w) out += "  (void)zw;\n";
  const std::string factor = float_x ? "a[k]" : concat(floats ? "(float)" : "", "((int32_t)a[k] - zx)");
  const std::string i = "const uint32_t i = (uint32_t)(tap * cg + k);\n          ";
  return out +
         tap_loop(
             concat("    uint32_t i = (uint32_t)(j * c->kh * c->kw * c->c);\n    for (ky = 0; ky < c->kh; ++ky) {\n",
                    "      const ", type_of(x), " *const a = x + ((y0 + ky * c->dy) * c->w + x0) * c->c;\n",
                    "      for (k = 0; k < c->kw * c->c; ++k, ++i) {\n        ", sum, " t = ", factor, " * ", each,
                    ";\n        sum += t;\n      }\n    }\n    return sum;\n"),
             concat("        const ", type_of(x), " *const a = x + (y * c->w + xx) * c->c + first;\n",
                    "        for (k = 0; k < cg; ++k) {\n          ", i, sum, " t = ", factor, " * ", each,
                    ";\n          sum += t;\n        }\n"),
             concat("        for (k = 0; k < cg; ++k) {\n          ", i, sum,
                    " t = ", floats ? "(float)c->pad" : "c->pad", " * ", each, ";\n          sum += t;\n        }\n"));
}

bool floats_alone(const Tensor& w) {
  const ScaleMap map = w.scale_map();
  return !w.dtype().is_code() || map.offset != nullptr || (!map.per_tensor() && !map.per_row()) ||
         w.dtype().kind() == DTypeKind::kCodebook;
}

// Packs codes into 32-bit words, 32 / bits each, the first in the low bits. Signs: bit 1 is +1.
std::vector<uint32_t> packed(const std::vector<int64_t>& codes, int bits, bool sign) {
  const size_t per = 32 / static_cast<size_t>(bits);
  std::vector<uint32_t> out((codes.size() + per - 1) / per, 0);
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto raw = sign ? static_cast<uint32_t>(codes[i] > 0) : static_cast<uint32_t>(codes[i]) & ((1U << bits) - 1U);
    out[i / per] |= raw << (static_cast<size_t>(bits) * (i % per));
  }
  return out;
}

}  // namespace

WeightForm Writer::write_weight(const Node& node, const inference::Product& op) {
  const std::string name = concat("w", now_);
  const DType dtype = op.weight.dtype();
  ExportedTensor row{.name = name, .parameter = concat(node.layer, ".weight"), .shape = op.weight.shape()};
  WeightForm form;
  if (floats_alone(op.weight)) {
    form.held = Held::kFloat;
    array("float", name, op.weight.to_vector());
    row.type = "float";
    if (dtype.is_code()) row.reason = "values of codes, as their scales differ within a row";
    report_.tensors.push_back(std::move(row));
    return form;
  }
  const std::vector<int64_t> codes = codes_of(op.weight);
  const bool sign = dtype.kind() == DTypeKind::kSign, is_signed = dtype.info().qmin < 0;
  form.bits = sign ? 1 : dtype.bits() <= 2 ? 2 : dtype.bits() <= 4 ? 4 : 8;
  form.code = sign ? WeightForm::Code::kSign : is_signed ? WeightForm::Code::kSigned : WeightForm::Code::kUnsigned;
  if (form.bits < 8) {
    form.held = Held::kInt32;
    array("uint32_t", name, packed(codes, form.bits, sign));
  } else {
    form.held = is_signed ? Held::kInt8 : Held::kUint8;
    array(type_of(form.held), name, std::vector<int32_t>(codes.begin(), codes.end()));
  }
  row.type = concat(form.bits, form.bits == 1 ? " bit" : " bits");
  report_.tensors.push_back(std::move(row));
  return form;
}

// Writes the geometry as a constant. Returns false if the shapes are too large for 32 bits.
bool Writer::write_conv(const Node& node, const inference::Product& op) {
  const Shape in = graph_[node.inputs[0]].form.sample, out = node.form.sample;
  Conv2dOptions o;
  int64_t h = graph_[node.inputs[0]].form.sample_rows(), w = 1, oh = h, ow = 1;
  if (op.conv) {
    o = *op.conv;
    h = in[0], w = in[1], oh = out[0], ow = out[1];
  }
  if (std::max({in.numel(), out.numel(), op.weight.numel()}) >= (int64_t{1} << 30)) return false;
  constants_ << "static const struct conv c" << now_ << " = {";
  for (const int64_t each : {h, w, in.cols(), oh, ow, out.cols(), o.kernel[0], o.kernel[1], o.stride[0], o.stride[1],
                             o.dilation[0], o.dilation[1], o.padding[0], o.padding[1], o.groups})
    constants_ << each << ", ";
  constants_ << o.pad_value << "};\n";
  return true;
}

void Writer::threshold_epilogue(Value product, const std::string& sum) {
  const Thresholds& t = plan_.thresholds[static_cast<size_t>(product)];
  array("int32_t", concat("t", now_), t.at);
  const auto same = [](const std::vector<int>& x) {
    return std::all_of(x.begin(), x.end(), [&](int e) { return e == x[0]; });
  };
  const auto choice = [&](const std::vector<int>& x, const char* name) {
    if (same(x)) return std::to_string(x[0]);
    array("int8_t", concat(name, now_), std::vector<int32_t>(x.begin(), x.end()));
    return concat(name, now_, "[j]");
  };
  const std::string base = choice(t.base, "base"), direction = choice(t.direction, "direction");
  const Value end = plan_.ends[static_cast<size_t>(product)];
  body_ << "      int32_t k, n = 0;\n      for (k = 0; k < " << t.count << "; ++k) n += " << sum << " >= t" << now_
        << "[j * " << t.count << " + k];\n      " << store(end, "p", "j", concat(base, " + (", direction, ") * n"))
        << '\n';
}

void Writer::epilogue(const Node& node, const inference::Product& op, bool integers, const std::string& sum) {
  const Node& in = graph_[node.inputs[0]];
  std::string value = sum;
  if (op.integer_out) {
    if (op.bias.defined()) {
      std::vector<int32_t> bias(op.bias.as<int32_t>(), op.bias.as<int32_t>() + op.bias.numel());
      array("int32_t", concat("b", now_), bias);
      value = concat(sum, " + b", now_, "[j]");
    }
    body_ << "      " << store(own(), "p", "j", value) << '\n';
    return;
  }
  std::vector<float> scale{1.0f};
  if (integers) {
    scale = output_scales(in, op);
  } else {
    if (!floats_alone(op.weight) && op.weight.quant() && op.weight.quant()->scale)
      scale = op.weight.quant()->scale->to_vector();
    if (in.params && in.params->scale)
      for (float& each : scale) each = in.params->scale->to_vector()[0] * each;
  }
  body_ << "      float t = (float)" << sum << ";\n";
  if (std::any_of(scale.begin(), scale.end(), [](float s) { return s != 1.0f; }))
    body_ << "      t = t * " << numbers("s", scale, "j") << ";\n";
  if (op.bias.defined()) body_ << "      t = t + " << numbers("b", op.bias.to_vector(), "j") << ";\n";
  body_ << "      " << store(own(), "p", "j", "t") << '\n';
}

void Writer::product_loop(const Node& node, const inference::Product& op, bool integers) {
  const Node& in = graph_[node.inputs[0]];
  const WeightForm form = write_weight(node, op);
  const Held x = held(node.inputs[0]);
  need(dot_name(x, form), dot_function(x, form));
  const auto first = [](const std::shared_ptr<const Tensor>& t) {
    return t ? static_cast<int64_t>(t->elements()[0]) : 0;
  };
  std::string zw = "0";
  if (!floats_alone(op.weight) && op.weight.quant() && op.weight.quant()->zero) {
    const std::vector<double> z = op.weight.quant()->zero->elements();
    array("int32_t", concat("z", now_), std::vector<int32_t>(z.begin(), z.end()));
    zw = concat("z", now_, z.size() == 1 ? "[0]" : "[j]");
  }
  body_ << "    for (p = 0; p < " << node.form.sample_rows() << "; ++p) for (j = 0; j < " << node.form.features()
        << "; ++j) {\n      const " << (integers ? "int32_t" : "float") << " sum = " << dot_name(x, form) << '('
        << buffer(node.inputs[0]) << ", w" << now_ << ", &c" << now_ << ", p, j, "
        << (in.params ? first(in.params->zero) : 0) << ", " << zw << ");\n";
}

void Writer::write_product(const Node& node, const inference::Product& op, bool integers) {
  if (integers && signs_to_signs(node, op)) return;
  const Value end = plan_.ends[static_cast<size_t>(now_)];
  const bool bits = held(node.inputs[0]) == Held::kBits;
  begin_result(end >= 0 ? end : own());
  bits ? sums_of_signs(node, op) : product_loop(node, op, integers);
  end >= 0 ? threshold_epilogue(now_, "sum") : epilogue(node, op, integers, "sum");
  body_ << (bits ? "    }}\n  }\n" : "    }\n  }\n");
}

void Writer::write(const Node& node, const inference::Product& op) {
  const Node& in = graph_[node.inputs[0]];
  const bool integers = sums_integers(graph_, node, op);
  const std::string operation = concat(integers ? "integers, " : "floats, ", in.form.dtype, " x ", op.weight.dtype(),
                                       op.conv ? ", convolution" : "");
  const bool one_scale = !in.params || ((!in.params->scale || in.params->scale->numel() == 1) && !in.params->offset);
  if (!one_scale || in.form.dtype.kind() == DTypeKind::kCodebook || (!in.params && in.form.scales))
    return refuse(operation, "inputs need one constant scale, without a real offset, or be fp32");
  if (op.integer_out && !integers) return refuse(operation, "sums could pass 2^31");
  if (op.integer_out && op.bias.defined()) {
    int64_t most = 0;
    for (const double b : op.bias.elements()) most = std::max(most, static_cast<int64_t>(std::abs(b)));
    if (most >= (int64_t{1} << 30)) return refuse(operation, "its bias could carry sums past 2^31");
  }
  if (!write_conv(node, op)) return refuse(operation, "has 2^30 numbers or more");
  const bool thresholds = plan_.ends[static_cast<size_t>(now_)] >= 0;
  write_product(node, op, integers);
  if (integers) return note(concat(operation, thresholds ? ", to thresholds" : ""));
  note(operation, Fate::kRounded, (static_cast<double>(op.weight.cols()) + 3) * 0x1p-23,
       "sums of floats, one after the other: off by at most this part of the sum of magnitudes");
}

}  // namespace bitgrad::c_target
