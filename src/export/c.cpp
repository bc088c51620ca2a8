// A model as one C99 file and its header: NAME.c, NAME.h, `int NAME_predict(const float *in, float *out)`.
#include "export/c_writer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>
#include <variant>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/nn/integer_graph.h"
#include "export/c_integer.h"
#include "export/targets.h"

namespace bitgrad::c_target {

std::string c_number(float x) {
  char text[64];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(x));
  return x < 0 || std::signbit(x) ? concat('(', text, ')') : text;
}

std::string c_comment(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const bool ends = (c == '/' && out.ends_with('*')) || (c == '*' && out.ends_with('/'));
    // A trigraph for a backslash joins lines.
    out += ends || (c == '/' && out.ends_with("??")) ? '|' : c;
  }
  if (out.ends_with('*')) out += ' ';
  return out;
}

std::vector<std::string> comment_lines(const ExportReport& report) {
  std::vector<std::string> lines;
  for (const auto& [name, text] : report.facts) {
    std::string line = name + ':';
    TextReader words(c_comment(text));
    for (std::string word; std::getline(words, word, ' ');) {
      if (line.size() + word.size() > 100) {
        lines.push_back(line);
        line = "  ";
      }
      line += ' ' + word;
    }
    lines.push_back(line);
  }
  return lines;
}

Writer::Writer(const inference::Graph& graph, Plan plan, std::string prefix, ExportReport& report)
    : graph_(graph), plan_(std::move(plan)), prefix_(std::move(prefix)), report_(report) {}

std::string Writer::buffer(Value v) const {
  if (v == 0 && bytes_.empty()) return "in";
  const Place& place = plan_.places[static_cast<size_t>(v)];
  constexpr const char* kPools[] = {"floats", "sums", "codes", "ucodes", "words"};
  const std::string pool = kPools[static_cast<size_t>(place.held)];
  return place.offset == 0 ? pool : concat('(', pool, " + ", place.offset, ')');
}

std::string Writer::element(Value v, const std::string& index) const { return concat(buffer(v), '[', index, ']'); }

std::string Writer::load(Value v, const std::string& row, const std::string& column) const {
  if (held(v) != Held::kBits) return element(v, concat('(', row, ") * ", features(v), " + ", column));
  const int64_t words = (features(v) + 31) / 32;
  return concat("(int32_t)(", buffer(v), "[(", row, ") * ", words, " + (", column, ") / 32] >> ((uint32_t)(", column,
                ") % 32U) & 1U)");
}

std::string Writer::store(Value v, const std::string& row, const std::string& column, const std::string& code) const {
  if (held(v) != Held::kBits)
    return concat(element(v, concat('(', row, ") * ", features(v), " + ", column)), " = (", type_of(held(v)), ")(",
                  code, ");");
  const int64_t words = (features(v) + 31) / 32;
  return concat("if ((", code, ") > 0) ", buffer(v), "[(", row, ") * ", words, " + (", column,
                ") / 32] |= 1U << ((uint32_t)(", column, ") % 32U);");
}

void Writer::describe_input(std::vector<std::string> comment, std::vector<float> bytes) {
  comment_ = std::move(comment);
  bytes_ = std::move(bytes);
  if (!bytes_.empty()) array("float", "value_of_byte", bytes_);
}

void Writer::note(std::string operation, Fate fate, double error, std::string reason) {
  report_.layers.push_back({graph_[now_].layer, std::move(operation), fate, error, std::move(reason)});
}

template <typename T>
void Writer::array(const std::string& type, const std::string& name, const std::vector<T>& x) {
  flash_bytes_ += static_cast<int64_t>(x.size()) * (type.find('8') != std::string::npos ? 1 : 4);
  constants_ << "static const " << type << ' ' << name << '[' << x.size() << "] = {";
  for (size_t i = 0; i < x.size(); ++i) {
    constants_ << (i == 0 ? "" : ",") << (i % 24 == 0 ? "\n  " : "");
    if constexpr (std::is_same_v<T, float>)
      constants_ << c_number(x[i]);
    else if constexpr (std::is_same_v<T, uint32_t>)
      constants_ << x[i] << 'U';
    else
      constants_ << +x[i];
  }
  constants_ << "};\n";
}
template void Writer::array(const std::string&, const std::string&, const std::vector<int8_t>&);
template void Writer::array(const std::string&, const std::string&, const std::vector<uint8_t>&);
template void Writer::array(const std::string&, const std::string&, const std::vector<int32_t>&);
template void Writer::array(const std::string&, const std::string&, const std::vector<int64_t>&);
template void Writer::array(const std::string&, const std::string&, const std::vector<uint32_t>&);
template void Writer::array(const std::string&, const std::string&, const std::vector<float>&);

std::string Writer::numbers(const std::string& name, const std::vector<float>& x, const std::string& index) {
  bool same = true;
  for (const float each : x) same = same && each == x[0] && std::signbit(each) == std::signbit(x[0]);
  if (same) return c_number(x.at(0));
  array("float", concat(name, now_), x);
  return concat(name, now_, '[', index, ']');
}

void Writer::run() {
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    now_ = static_cast<Value>(i);
    const Node& node = graph_.nodes()[i];
    if (node.form.dtype == dtypes::bf16) {
      refuse("values", "values between layers are bf16. Set model.values: fp32");
      continue;
    }
    const bool chained = !plan_.places[i].made && plan_.ends[i] < 0 && i > 0;  // inside a chain of thresholds
    bool end = false;
    for (const Value v : plan_.ends) end = end || v == now_;
    if (chained || end) {
      note(chained ? "in the thresholds behind" : "thresholds");
      continue;
    }
    body_ << "  /* " << c_comment(node.layer) << " */\n";
    std::visit([&](const auto& op) { write(node, op); }, node.operation);
  }
}

std::string Writer::header() const {
  std::string guard = prefix_;
  for (char& c : guard) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  const std::string shape = concat(graph_[0].form.sample), out = concat(graph_[graph_.output()].form.sample);
  std::string comment;
  for (const std::string& line : comment_) comment += "\n   " + line;
  return concat("/* Written by bitgrad export.", comment, " */\n#ifndef ", guard, "_H\n#define ", guard,
                "_H\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\nenum { ", prefix_,
                "_inputs = ", numel(0), ", ", prefix_, "_outputs = ", numel(graph_.output()), " };\ntypedef ",
                input_type(), ' ', prefix_, "_input;\ntypedef ", type_of(held(graph_.output())), ' ', prefix_,
                "_output;\n\n/* One sample ", shape, " (images: rows, columns, channels) to outputs ", out,
                ". Returns 0, or 1 where\n   an input is not a finite number: then out is not written. Not reentrant: "
                "buffers are static. */\nint ",
                prefix_, "_predict(const ", input_type(), " *in, ", prefix_,
                "_output *out);\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

std::string Writer::source(const std::string& header_name) const {
  std::string out = c_head(header_name) + c_common(/*bits=*/bytes_.empty(), rounds_);
  constexpr const char* kPools[] = {"floats", "sums", "codes", "ucodes", "words"};
  for (size_t i = 0; i < 5; ++i)
    if (plan_.pool[i] > 0)
      out += concat("static ", type_of(static_cast<Held>(i)), ' ', kPools[i], '[', plan_.pool[i], "];\n");
  out += scratch() + '\n' + constants_.str() + '\n';
  for (const std::string& f : functions_) out += f;
  const Value last = graph_.output();
  const int64_t tables = static_cast<int64_t>(bytes_.size()) / 256;
  const std::string table = tables > 1 ? concat("i % ", tables, " * 256 + in[i]") : "in[i]";
  const std::string read = bytes_.empty()
                               ? std::string("    if ((bits_of(in[i]) & 0x7f800000U) == 0x7f800000U) return 1;\n")
                               : concat("    ", element(0, "i"), " = value_of_byte[", table, "];\n");
  return out + concat("int ", prefix_, "_predict(const ", input_type(), " *in, ", prefix_,
                      "_output *out) {\n  int32_t i;\n", "  for (i = 0; i < ", numel(0), "; ++i)\n", read, body_.str(),
                      "  for (i = 0; i < ", numel(last), "; ++i) out[i] = ", element(last, "i"), ";\n  return 0;\n}\n");
}

}  // namespace bitgrad::c_target

namespace bitgrad {
namespace {

// Why the values of a node are kept in floats: what reads them, and what to change.
std::string why_floats(const inference::Graph& graph, size_t i) {
  const auto& nodes = graph.nodes();
  if (std::cmp_equal(i, graph.output())) return ", in floats, which the model returns";
  for (size_t j = i + 1; j < nodes.size(); ++j) {
    const auto& in = nodes[j].inputs;
    if (std::find(in.begin(), in.end(), static_cast<inference::Value>(i)) == in.end()) continue;
    if (std::holds_alternative<inference::Quantize>(nodes[j].operation))
      return concat(
          ", in floats, since ", nodes[j].layer,
          " rounds them behind it to codes of more than 4 bits, or by scales that are not thresholds: inputs of "
          "4 bits or less need no floats");
    return concat(
        ", in floats, since ", nodes[j].layer,
        " behind it computes in floats: only layers with inputs of few bits (quant.rules: inputs) read codes");
  }
  return ", in floats";
}

// Bytes of constants and buffers, and what the buffers are largest for.
void note_memory(ExportReport& report, const inference::Graph& graph, const c_target::Plan& plan,
                 const c_target::Writer& writer) {
  report.flash_bytes = writer.flash_bytes();
  report.ram_bytes = writer.scratch_bytes();
  for (size_t i = 0; i < std::size(plan.pool); ++i)
    report.ram_bytes += plan.pool[i] * c_target::bytes_of(static_cast<c_target::Held>(i));
  int64_t most = 0;
  std::string layer;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const c_target::Place& p = plan.places[i];
    if (const int64_t bytes = p.elements * c_target::bytes_of(p.held); p.made && bytes > most) {
      most = bytes;
      layer = graph.nodes()[i].layer + (p.held == c_target::Held::kFloat ? why_floats(graph, i) : "");
    }
  }
  report.facts.emplace_back(
      "memory", concat("flash: ", report.flash_bytes, " bytes of constants, and the code; RAM: ", report.ram_bytes,
                       " bytes of buffers, beside those of inputs and outputs",
                       most > 0 ? concat(" (the largest: ", most, " bytes for ", layer, ')') : ""));
}

}  // namespace

std::string c_name_of(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  std::string name = file.substr(0, file.find_last_of('.'));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  require(!name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])), "c", "-o ", path,
          ": the functions are named like the file. Expected a name that begins with a letter, such as model.c");
  const bool plain = printable(file) == file && file.find_first_of("\"\\<>?*|") == std::string::npos;
  require(plain, "c", "-o ", printable(path), ": an #include cannot name the header ", printable(file),
          ". Expected letters, digits, '_', '-' and '.', such as model.c");
  for (const char* known : {"float", "stdint"})
    require(name != known, "c", "-o ", path, ": the header would replace C's own ", known,
            ".h. Choose another name, such as model.c");
  return name;
}

namespace {

ExportReport export_integers(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const inference::Graph graph = inference::deployed(*source.model, source.spec->input);
  ExportReport report{.variant = "C99 of integers"};
  note_inputs(report, source, spec, graph);
  note_codes(report, graph, spec);
  return c_integer::write_c(
      graph, path, spec, std::move(report),
      spec.with_normalization ? SampleValues(source.affine, source.normalize).table() : std::vector<float>());
}

}  // namespace

ExportReport export_target_c(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  if (inference::integer_rule(*source.model)) return export_integers(source, path, spec);
  require(!spec.float_io, "c",
          "--float-io: inputs and outputs of this model are floats, as it computes in floats. "
          "Leave it out");
  require(!spec.softmax, "c",
          "--softmax: this model computes in floats; it is for networks of integers (compute: integer). Leave it out");
  require(!spec.stream, "c",
          "--stream: rows of values are kept in C of networks of integers alone; this model computes in floats. "
          "Leave it out");
  const std::string name = c_name_of(path), header = path.substr(0, path.size() - 1) + 'h';
  const inference::Graph graph = c_target::pooled_codes(inference::lowered(*source.model, source.spec->input));
  ExportReport report{.variant = "C99"};
  const c_target::Plan plan = c_target::make_plan(graph, spec.with_normalization);
  c_target::Writer writer(graph, plan, name, report);
  note_inputs(report, source, spec, graph);
  writer.describe_input(c_target::comment_lines(report), spec.with_normalization
                                                             ? SampleValues(source.affine, source.normalize).table()
                                                             : std::vector<float>());
  writer.run();
  note_memory(report, graph, plan, writer);
  if (spec.dry_run) return report;
  report.require_all_held("c");
  FileGroup group;
  write_file_atomically(header, writer.header());
  write_file_atomically(path, writer.source(header.substr(header.find_last_of('/') + 1)));
  group.commit();
  return report;
}

}  // namespace bitgrad
