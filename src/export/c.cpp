// A model as one C99 file and its header: NAME.c, NAME.h, `int NAME_predict(const float *in, float *out)`.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <variant>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "export/c_writer.h"
#include "export/targets.h"

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
void note_memory(ExportReport& report, const inference::Graph& graph, const c_target::Plan& plan, int64_t flash) {
  report.flash_bytes = flash;
  report.ram_bytes = 0;
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

// Lines of a C comment, of at most 100 characters where words allow it.
std::vector<std::string> comment_lines(const ExportReport& report) {
  std::vector<std::string> lines;
  for (const auto& [name, text] : report.facts) {
    std::string line = name + ':';
    TextReader words(c_target::c_comment(text));
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

ExportReport export_target_c(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const DeviceGuard host(Device::cpu());
  const std::string name = c_name_of(path), header = path.substr(0, path.size() - 1) + 'h';
  const inference::Graph graph = c_target::pooled_codes(inference::lowered(*source.model, source.spec->input));
  ExportReport report;
  report.family = "C99";
  const c_target::Plan plan = c_target::make_plan(graph, spec.with_normalization);
  c_target::Writer writer(graph, plan, name, report);
  note_inputs(report, source, spec, graph);
  writer.describe_input(comment_lines(report), spec.with_normalization
                                                   ? SampleValues(source.affine, source.normalize).table()
                                                   : std::vector<float>());
  writer.run();
  note_memory(report, graph, plan, writer.flash_bytes());
  if (spec.dry_run) return report;
  report.require_all_held("c");
  FileGroup group;
  write_file_atomically(header, writer.header());
  write_file_atomically(path, writer.source(header.substr(header.find_last_of('/') + 1)));
  group.commit();
  return report;
}

}  // namespace bitgrad
