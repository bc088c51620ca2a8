// A network of integers as NAME.c and NAME.h: `void NAME_predict(const int8_t *in, int8_t *out)`, or with floats or
// bytes.
#include "export/c_integer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <variant>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "export/c_writer.h"
#include "export/targets.h"

namespace bitgrad::c_integer {
namespace {

using inference::Node;
using inference::Product;
using inference::Requantize;

constexpr int64_t kMostSum = int64_t{1} << 31, kPlainSum = int64_t{1} << 30;

class Writer {
 public:
  Writer(const Graph& graph, std::string prefix, Doors doors, Softmax softmax, bool stream, ExportReport& report)
      : graph_(graph),
        doors_(std::move(doors)),
        softmax_(softmax),
        plan_(stream ? make_stream_plan(graph, doors_.own_input(), doors_.floats_out)
                     : make_plan(graph, doors_.own_input(), doors_.floats_out)),
        report_(report) {
    texts_.prefix = std::move(prefix);
    texts_.stream = has_rings(plan_);
  }
  void run();
  std::string source(const std::string& header_name) const;
  std::string header(const std::vector<std::string>& comment) const;
  const Plan& plan() const { return plan_; }
  int64_t flash_bytes() const { return flash_bytes_; }
  std::string rings() const {
    return described_rings(graph_, plan_, make_plan(graph_, doors_.own_input(), doors_.floats_out).arena);
  }

 private:
  void write(const Step& step, const Product& op);
  void write(const Step& step, const inference::IntegerAdd& op);
  void write(const Step& step, const inference::IntegerMultiply& op);
  void write(const Step& step, const inference::MaxPool& op);
  void write(const Step& step, const inference::IntegerAvgPool& op);
  void write(const Step& step, const inference::Table& op);
  void write(const Step& step, const Requantize& op);
  void write(const Step& step, const inference::Reshape&);
  void write(const Step& step, const inference::Join& op);
  template <typename Operation>
  void write(const Step&, const Operation&) {
    refuse("layer", "C of integers has no such layer");
  }

  // How a product is computed: of groups of channels `grouped` reads zero points with each code, `depthwise` does not.
  enum class Loop : uint8_t { kBytes, kNibbles, kGrouped, kDepthwise };
  // Weights, and the sums behind them as the loops add them.
  std::string weights(const Product& op, Loop loop);
  std::string outputs(const Step& step, const Product& op, bool grouped);
  // Codes of pixels outside the image.
  std::string outside(const Step& step);
  std::string geometry(const Step& step, const Product& op, int64_t stored);
  std::string sum(Value node, bool first_is_product);
  void end_pool(const Step& step, const std::string& function);
  void table(const Step& step, const std::array<int8_t, 256>& codes, const std::string& what);
  void note_sums(const Step& step, const Product& op, const std::vector<int64_t>& bias, bool grouped);
  void rule_is(OutputRounding rule) { texts_.rule = rule; }
  FixedPoint multiplier(const Requantize& op, size_t j);
  FixedPoint used(FixedPoint each) {
    texts_.left = texts_.left || (texts_.rule != OutputRounding::kFloat && each.e > 0);
    return each;
  }

  // Prefix of macros.
  std::string macros() const {
    std::string out = texts_.prefix;
    for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return out;
  }
  std::string spot(Value v) const;
  int64_t numel(Value v) const { return graph_[v].form.sample.numel(); }
  int32_t zero(Value v) const { return inference::code_scale(graph_[v]).zero; }
  template <typename T>
  std::string array(const std::string& type, const std::string& name, const std::vector<T>& x);
  void note(std::string operation) {
    report_.layers.push_back({graph_[now_].layer, std::move(operation), ExportedTensor::Fate::kExact, 0, ""});
  }
  void refuse(std::string operation, std::string reason) {
    report_.layers.push_back(
        {graph_[now_].layer, std::move(operation), ExportedTensor::Fate::kRefused, 0, std::move(reason)});
  }

  // The first lines of the function.
  std::string signature() const;
  std::string constants_of(const std::string& which, const inference::CodeScale& x) const;

  const Graph& graph_;
  const Doors doors_;
  const Softmax softmax_;
  const Plan plan_;
  ExportReport& report_;
  Texts texts_;
  Value now_ = 0;
  TextWriter constants_, body_;
  std::map<int32_t, int64_t> outside_ = {};  // channels of the array, by zero point
  int64_t flash_bytes_ = 0, largest_sum_ = 0;
};

std::string Writer::spot(Value v) const {
  const Spot& s = plan_.spots[static_cast<size_t>(v)];
  if (s.where == Spot::Where::kInput) return "in";
  if (s.where == Spot::Where::kOutput) return "out";
  return s.offset == 0 ? "arena.bytes" : concat("arena.bytes + ", s.offset);
}

template <typename T>
std::string Writer::array(const std::string& type, const std::string& name, const std::vector<T>& x) {
  flash_bytes_ += static_cast<int64_t>(x.size() * sizeof(T));
  const std::string full = now_ == 0 ? name : concat(name, now_);
  constants_ << "static const " << type << ' ' << full << '[' << x.size() << "] = {";
  for (size_t i = 0; i < x.size(); ++i) {
    constants_ << (i == 0 ? "" : ",") << (i % 32 == 0 ? "\n  " : "");
    if constexpr (std::is_same_v<T, uint32_t>)
      constants_ << x[i] << 'U';
    else if constexpr (std::is_same_v<T, int32_t>)
      constants_ << (x[i] == INT32_MIN ? std::string("(-2147483647 - 1)") : concat(x[i]));
    else
      constants_ << +x[i];
  }
  constants_ << "};\n";
  return full;
}

FixedPoint Writer::multiplier(const Requantize& op, size_t j) {
  rule_is(op.rule);
  if (op.rule == OutputRounding::kFloat) return float_parts(op.factor[op.factor.size() == 1 ? 0 : j]);
  return used(op.multiplier[op.multiplier.size() == 1 ? 0 : j]);
}

std::string Writer::weights(const Product& op, Loop loop) {
  const std::vector<int64_t> codes = codes_of(op.weight);
  const int64_t o = op.weight.rows(), k = op.weight.cols();
  if (loop == Loop::kGrouped) return array("int8_t", "w", std::vector<int8_t>(codes.begin(), codes.end()));
  if (loop == Loop::kDepthwise) return array("int8_t", "w", taps_first(codes, o));
  return loop == Loop::kNibbles ? array("uint32_t", "w", ordered_nibbles(codes, o, k))
                                : array("int8_t", "w", ordered_bytes(codes, o, k));
}

// Refuses sums that int32 does not hold.
void Writer::note_sums(const Step& step, const Product& op, const std::vector<int64_t>& bias, bool grouped) {
  const std::vector<int64_t> codes = codes_of(op.weight);
  const int64_t k = op.weight.cols(), x = grouped ? 255 : 128;
  int64_t most = 0;
  for (int64_t j = 0; j < op.weight.rows(); ++j) {
    int64_t magnitude = 0;
    for (int64_t i = 0; i < k; ++i) magnitude += std::abs(codes[static_cast<size_t>(j * k + i)]);
    most = std::max(most, std::abs(bias[static_cast<size_t>(j)]) + magnitude * x);
  }
  largest_sum_ = std::max(largest_sum_, most);
  if (most >= kMostSum)
    refuse("product", concat("sums reach ", most, ", beyond 2^31: a bias of ", graph_[step.node].layer,
                             " is too large for the scales of its weights and inputs"));
}

// Biases and the output stage: members b, m, e of a product, e0.
std::string Writer::outputs(const Step& step, const Product& op, bool grouped) {
  const auto& stage = std::get<Requantize>(graph_[step.stage].operation);
  const auto o = static_cast<size_t>(op.weight.rows());
  const int64_t k = op.weight.cols(), z = zero(step.inputs[0]);
  const std::vector<int64_t> codes = codes_of(op.weight);
  std::vector<int64_t> bias(o, 0);
  std::vector<int32_t> m(o);
  std::vector<int8_t> e(o);
  for (size_t j = 0; j < o; ++j) {
    if (op.bias.defined()) bias[j] = op.bias.as<int32_t>()[j];
    for (int64_t i = 0; i < k && !grouped; ++i)
      bias[j] -= z * codes[j * static_cast<size_t>(k) + static_cast<size_t>(i)];
    const FixedPoint each = multiplier(stage, j);
    m[j] = each.m;
    e[j] = static_cast<int8_t>(std::clamp(each.e, -128, 127));
  }
  note_sums(step, op, bias, grouped);
  std::vector<int32_t> stored;
  for (const int64_t b : bias) stored.push_back(static_cast<int32_t>(std::clamp(b, -kMostSum, kMostSum - 1)));
  const bool same = std::all_of(e.begin(), e.end(), [&](int8_t each) { return each == e[0]; });
  const std::string b = array("int32_t", "b", stored), factors = array("int32_t", "m", m);
  return concat(b, ", ", factors, ", ", same ? "0" : array("int8_t", "e", e));
}

std::string Writer::geometry(const Step& step, const Product& op, int64_t stored) {
  const Form &in = graph_[step.inputs[0]].form, &out = graph_[step.stage].form;
  std::vector<int64_t> dims;
  if (op.conv) {
    const Conv2dOptions& c = *op.conv;
    dims = {in.sample[0], in.sample[1], in.sample[2], out.sample[0], out.sample[1], op.weight.rows(),
            c.kernel[0],  c.kernel[1],  c.stride[0],  c.stride[1],   c.dilation[0], c.dilation[1],
            c.padding[0], c.padding[1], stored,       c.groups};
  } else {
    dims = {in.sample_rows(), 1, in.features(), in.sample_rows(), 1, op.weight.rows(), 1, 1, 1, 1, 1, 1, 0, 0,
            stored,           1};
  }
  if (texts_.stream) dims.push_back(step.reads > 0 ? step.reads : dims[0]);
  for (const int64_t d : dims) texts_.long_dims = texts_.long_dims || d > INT16_MAX;
  return joined(dims, ", ");
}

std::string Writer::sum(Value node, bool first_is_product) {
  const auto& op = std::get<inference::IntegerAdd>(graph_[node].operation);
  rule_is(op.rule);
  const size_t a = first_is_product ? 0 : 1, b = 1 - a;
  const Value before = std::exchange(now_, node);
  std::string line = concat("static const struct sum s", node, " = {{");
  if (op.rule == OutputRounding::kFloat)
    line += concat(op.factor[a], ", ", op.factor[b], ", 0}, {0, 0, ", op.shift);
  else
    line += concat(used(op.in[a]).m, ", ", used(op.in[b]).m, ", ", used(op.out).m, "}, {", op.in[a].e, ", ", op.in[b].e,
                   ", ", op.out.e);
  constants_ << line << "}, {" << op.zero_in[a] << ", " << op.zero_in[b] << "}, " << op.zero << ", " << op.lo << ", "
             << op.hi << "};\n";
  now_ = before;
  flash_bytes_ += 28;
  return concat("&s", node);
}

std::string Writer::outside(const Step& step) {
  int64_t& channels = outside_[zero(step.inputs[0])];
  channels = std::max(channels, graph_[step.inputs[0]].form.features());
  return concat("outside", zero(step.inputs[0]) + 128);
}

void Writer::write(const Step& step, const Product& op) {
  const DTypeInfo& info = op.weight.dtype().info();
  if (!are_integers(op.weight.dtype()) || info.qmin < -128 || info.qmax > 127)
    return refuse(concat("product with ", op.weight.dtype()), "weights are integer codes of -128 to 127");
  const int64_t k = op.weight.cols();
  // Sums of two codes a byte are computed times 16.
  const bool fits = info.qmin >= -8 && info.qmax <= 7 && k * 8 * 128 * 16 < kMostSum;
  const Loop loop = op.conv && op.conv->groups > 1 ? is_depthwise(op) ? Loop::kDepthwise : Loop::kGrouped
                    : fits                         ? Loop::kNibbles
                                                   : Loop::kBytes;
  const auto& stage = std::get<Requantize>(graph_[step.stage].operation);
  const std::string w = weights(op, loop), out = outputs(step, op, loop == Loop::kGrouped),
                    dims = geometry(step, op, stored_columns(k));
  const int32_t e0 = multiplier(stage, 0).e;
  constants_ << "static const struct product c" << now_ << " = {" << w << ", " << out << ", " << dims << ", "
             << std::clamp(e0, -128, 127) << ", " << zero(step.inputs[0]) << ", " << stage.zero << ", " << stage.lo
             << ", " << stage.hi << "};\n";
  flash_bytes_ += 16 + (texts_.stream ? 17 : 16) * (texts_.long_dims ? 4 : 2) + 10;
  const char* const function = loop == Loop::kDepthwise ? "depthwise"
                               : loop == Loop::kGrouped ? "grouped"
                               : loop == Loop::kNibbles ? "nibbles"
                                                        : "bytes";
  bool* const used[] = {&texts_.bytes, &texts_.nibbles, &texts_.grouped};
  Call call{concat(function, "(&c", now_, ", "), spot(step.inputs[0]), spot(step.result)};
  if (loop == Loop::kDepthwise) {
    texts_.depthwise_taps = std::max(texts_.depthwise_taps, k);
    call.more = ", " + outside(step);
  } else {
    *used[static_cast<size_t>(loop)] = true;
  }
  const bool rows = loop == Loop::kBytes || loop == Loop::kNibbles;
  if (step.sum >= 0) {
    call.more = ", " + sum(step.sum, graph_[step.sum].inputs[0] == step.stage);
    call.other = spot(step.inputs[1]);
  } else if (texts_.fused && rows) {
    call.more = ", NULL, NULL";
  }
  body_ << statement(graph_, plan_, step, call);
  const char* const kind = !op.conv                   ? "linear"
                           : rows                     ? "conv"
                           : loop == Loop::kDepthwise ? "depthwise conv"
                                                      : "grouped conv";
  note(concat(kind, ", weights ", op.weight.dtype(), loop == Loop::kNibbles ? ", two a byte" : ", a byte each",
              step.sum >= 0 ? ", with the sum behind it" : "",
              step.kept > 0 ? concat(", ", step.kept, " rows kept of ", graph_[step.result].form.sample[0]) : ""));
}

void Writer::write(const Step& step, const inference::IntegerAdd&) {
  texts_.add = true;
  const std::string s = sum(step.node, true);
  body_ << "  sums(" << s << ", " << spot(step.inputs[0]) << ", " << spot(step.inputs[1]) << ", " << spot(step.result)
        << ", " << numel(step.result) << ");\n";
  note("add");
}

void Writer::write(const Step& step, const inference::IntegerMultiply& op) {
  rule_is(op.rule);
  texts_.multiply = true;
  const FixedPoint m = op.rule == OutputRounding::kFloat ? float_parts(op.factor) : used(op.multiplier);
  body_ << "  multiply(" << spot(step.inputs[0]) << ", " << spot(step.inputs[1]) << ", " << spot(step.result) << ", "
        << numel(step.result) << ", " << op.zero_in[0] << ", " << op.zero_in[1] << ", " << m.m << ", " << m.e << ", "
        << op.zero << ", " << op.lo << ", " << op.hi << ");\n";
  note("multiply");
}

// The end of the pool's constants, and its call.
void Writer::end_pool(const Step& step, const std::string& function) {
  if (texts_.stream) constants_ << ", " << (step.reads > 0 ? step.reads : graph_[step.inputs[0]].form.sample[0]);
  constants_ << "};\n";
  flash_bytes_ += texts_.stream ? 56 : 52;
  body_ << statement(graph_, plan_, step,
                     {concat(function, "(&p", now_, ", "), spot(step.inputs[0]), spot(step.result)});
}

void Writer::write(const Step& step, const inference::MaxPool& op) {
  texts_.max_pool = true;
  const Shape &in = graph_[step.inputs[0]].form.sample, &out = graph_[step.node].form.sample;
  const PoolOptions& o = op.options;
  constants_ << "static const struct pool p" << now_ << " = {"
             << joined(std::vector<int64_t>{in[0], in[1], in[2], out[0], out[1], o.size[0], o.size[1], o.stride[0],
                                            o.stride[1], o.padding[0], o.padding[1], -128, 127},
                       ", ");
  end_pool(step, "max_pool");
  note("max_pool");
}

void Writer::write(const Step& step, const inference::IntegerAvgPool& op) {
  texts_.avg_pool = true;
  const Shape &in = graph_[step.inputs[0]].form.sample, &out = graph_[step.node].form.sample;
  PoolOptions o = op.options;
  if (op.whole_image) o = {{in[0], in[1]}, {1, 1}, {0, 0, 0, 0}};
  constants_ << "static const struct pool p" << now_ << " = {"
             << joined(std::vector<int64_t>{in[0], in[1], in[2], op.whole_image ? 1 : out[0],
                                            op.whole_image ? 1 : out[1], o.size[0], o.size[1], o.stride[0], o.stride[1],
                                            o.padding[0], o.padding[1], op.lo, op.hi},
                       ", ");
  end_pool(step, "avg_pool");
  note("mean of pixels");
}

void Writer::table(const Step& step, const std::array<int8_t, 256>& codes, const std::string& what) {
  texts_.table = true;
  const std::string t = array("int8_t", "t", std::vector<int8_t>(codes.begin(), codes.end()));
  body_ << "  table(" << t << ", " << spot(step.inputs[0]) << ", " << spot(step.result) << ", " << numel(step.result)
        << ");\n";
  note(what);
}

void Writer::write(const Step& step, const inference::Table& op) {
  table(step, op.codes, op.function.empty() ? "other scale, by a table" : concat(op.function, ", by a table"));
}

void Writer::write(const Step& step, const Requantize& op) {
  std::array<int8_t, 256> codes{};
  for (int32_t x = -128; x < 128; ++x)
    codes[static_cast<size_t>(x + 128)] = static_cast<int8_t>(inference::code_of(op, x, 0));
  table(step, codes, "other scale, by a table");
}

void Writer::write(const Step&, const inference::Reshape&) { note("reshape, in place"); }

void Writer::write(const Step& step, const inference::Join& op) {
  if (op.kind != inference::JoinKind::kConcat) return refuse("join", "sums and products of codes have scales");
  texts_.concat = true;
  const Form& form = graph_[step.result].form;
  int64_t offset = 0;
  for (const Value v : step.inputs) {
    const int64_t features = graph_[v].form.features();
    body_ << "  concat(" << spot(v) << ", " << spot(step.result) << " + " << offset << ", " << form.sample_rows()
          << ", " << features << ", " << form.features() << ");\n";
    offset += features;
  }
  note("concat");
}

void Writer::run() {
  if (doors_.bytes_in()) array("int8_t", "code_of_byte", doors_.code_of_byte);
  for (const Step& step : plan_.steps) texts_.fused = texts_.fused || step.sum >= 0;
  for (const Step& step : plan_.steps) {
    now_ = step.node;
    body_ << (step.reads > 0 ? "    /* " : "  /* ") << c_target::c_comment(graph_[now_].layer) << " */\n";
    std::visit([&](const auto& op) { write(step, op); }, graph_[now_].operation);
  }
  if (softmax_.rows > 0) note("softmax");
  now_ = 0;
  for (const auto& [code, channels] : outside_)
    array("int8_t", concat("outside", code + 128),
          std::vector<int8_t>(static_cast<size_t>(channels), static_cast<int8_t>(code)));
  texts_.wide = largest_sum_ >= kPlainSum;
}

std::string number(float x) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.9g", static_cast<double>(x));
  const std::string text = buffer;
  return text.find_first_of(".e") == std::string::npos ? text + ".0f" : text + 'f';
}

std::string Writer::signature() const {
  return concat(doors_.floats_in ? "int " : "void ", texts_.prefix, "_predict(const ", doors_.in_type(), " *in, ",
                doors_.out_type(), " *out)");
}

std::string Writer::constants_of(const std::string& which, const inference::CodeScale& x) const {
  return concat("#define ", macros(), '_', which, "_SCALE ", number(x.scale), "\n#define ", macros(), '_', which,
                "_ZERO (", x.zero, ")\n");
}

std::string Writer::header(const std::vector<std::string>& comment) const {
  const std::string &name = texts_.prefix, guard = macros();
  std::string lines, codes;
  for (const std::string& line : comment) lines += "\n   " + line;
  const Value last = graph_[graph_.output()].inputs[0];
  if (!doors_.floats_in && !doors_.bytes_in()) codes += constants_of("INPUT", inference::code_scale(graph_[1]));
  if (!doors_.floats_out) codes += constants_of("OUTPUT", doors_.codes_out);
  if (!codes.empty())
    codes =
        "/* A code means scale * (code - zero): a code of x is x / scale, rounded to the nearest "
        "integer (of two the even one),\n   + zero, within -128 to 127. */\n" +
        codes + '\n';
  return concat("/* Written by bitgrad export.", lines, " */\n#ifndef ", guard, "_H\n#define ", guard,
                "_H\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\nenum { ", name,
                "_inputs = ", numel(1), ", ", name, "_outputs = ", numel(last), ", ", name,
                "_arena_bytes = ", plan_.arena, " };\ntypedef ", doors_.in_type(), ' ', name, "_input;\ntypedef ",
                doors_.out_type(), ' ', name, "_output;\n\n", codes, "/* One sample ", concat(graph_[1].form.sample),
                " (images: rows, columns, channels) to outputs ", concat(graph_[last].form.sample),
                doors_.floats_in
                    ? ". Returns 0,\n   or 1 where an input is not a finite number: then out is not written."
                    : concat(". All ", doors_.bytes_in() ? "bytes" : "codes", " are\n   legal."),
                " Not reentrant: buffers are static. in and out do not overlap. */\n", signature(),
                ";\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

std::string Writer::source(const std::string& header_name) const {
  std::string storage;
  if (plan_.arena > 0)
    storage += concat("static union {\n  uint32_t words[", plan_.arena / 4, "];\n  int8_t bytes[", plan_.arena,
                      "];\n} arena;\n");
  if (texts_.bytes || texts_.nibbles)
    storage += concat("static union {\n  uint32_t word;\n  int8_t x[", plan_.columns, " * ", macros(),
                      "_WIDE];\n} columns;\n");
  std::string text = functions(texts_);
  const std::string mark = "@STORAGE@";
  text.replace(text.find(mark), mark.size(), storage + '\n');
  const Value last = graph_[graph_.output()].inputs[0];
  const bool copied = plan_.spots[static_cast<size_t>(last)].where != Spot::Where::kOutput;
  const bool loops = doors_.floats_in || doors_.bytes_in() || doors_.floats_out;
  return concat("/* Written by bitgrad export. C99, integers alone", doors_.floats_out ? " between floats" : "",
                ", no memory but the arrays below. */\n#include \"", header_name, "\"\n", doors_.functions(), text,
                softmax_.function(), constants_.str(), '\n', signature(), " {\n", loops ? "  int32_t i;\n" : "",
                texts_.stream ? "  int32_t y, r;\n" : "", doors_.read(graph_, spot(1)), body_.str(),
                doors_.floats_out ? softmax_.call(spot(last)) + doors_.write(graph_, spot(last))
                : copied          ? concat("  memcpy(out, ", spot(last), ", ", numel(last), ");\n")
                                  : "",
                doors_.floats_out ? "" : softmax_.call("out"), doors_.floats_in ? "  return 0;\n" : "", "}\n");
}

void note_memory(ExportReport& report, const Graph& graph, const Writer& writer) {
  const Plan& plan = writer.plan();
  report.flash_bytes = writer.flash_bytes();
  report.ram_bytes = plan.arena + plan.columns;
  int64_t most = 0;
  std::string layer;
  for (const Step& step : plan.steps)
    if (const Spot& s = plan.spots[static_cast<size_t>(step.result)];
        s.where == Spot::Where::kArena && s.bytes > most) {
      most = s.bytes;
      layer = graph[step.node].layer;
    }
  report.facts.emplace_back(
      "memory", concat("flash: ", report.flash_bytes, " bytes of constants, and the code; RAM: ", report.ram_bytes,
                       " bytes (values: ", plan.arena, ", windows of convolutions: ", plan.columns,
                       plan.columns > 0 ? ", twice that with the DSP extension of Arm" : "",
                       "), beside those of inputs and outputs",
                       most > 0 ? concat("; the largest value: ", most, " bytes of ", layer) : ""));
}

}  // namespace

ExportReport write_c(const Graph& graph, const std::string& path, const ExportSpec& spec, ExportReport report,
                     const std::vector<float>& value_of_byte) {
  const std::string header = path.substr(0, path.size() - 1) + 'h';
  Writer writer(graph, c_name_of(path), doors_of(graph, spec, value_of_byte), softmax_of(graph, spec), spec.stream,
                report);
  writer.run();
  note_memory(report, graph, writer);
  if (spec.stream) report.facts.emplace_back("rows", writer.rings());
  if (spec.dry_run) return report;
  report.require_all_held("c");
  FileGroup group;
  write_file_atomically(header, writer.header(c_target::comment_lines(report)));
  write_file_atomically(path, writer.source(header.substr(header.find_last_of('/') + 1)));
  group.commit();
  return report;
}

}  // namespace bitgrad::c_integer
