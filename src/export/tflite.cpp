// Networks of integers for LiteRT (TensorFlow Lite) and TensorFlow Lite Micro.
#include "export/tflite.h"

#include <string_view>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "export/targets.h"

namespace bitgrad::tflite {
namespace {

// The rule of a graph: that of its first output stage; of a graph without one, any.
OutputRounding rule_of(const inference::Graph& graph) {
  for (const inference::Node& node : graph.nodes()) {
    if (const auto* const op = std::get_if<inference::Requantize>(&node.operation)) return op->rule;
    if (const auto* const sum = std::get_if<inference::IntegerAdd>(&node.operation)) return sum->rule;
  }
  return OutputRounding::kDouble;
}

// Readers with equal codes; others run the file too, with codes that differ by roundings.
std::string_view equal_in(OutputRounding rule) {
  switch (rule) {
    case OutputRounding::kDouble:
      return "TensorFlow Lite Micro, CMSIS-NN, LiteRT with its reference kernels (BUILTIN_REF)";
    case OutputRounding::kSingle:
      return "TensorFlow Lite Micro and CMSIS-NN built with single rounding";
    case OutputRounding::kFloat:
      return "LiteRT with XNNPACK (its default)";
    case OutputRounding::kRuy:
      return "LiteRT with its optimized kernels, without XNNPACK";
  }
  return "";
}

}  // namespace

#if !BITGRAD_WITH_FLATBUFFERS
std::vector<uint8_t> file_of(const inference::Graph&, const std::string&, const ExportSpec&, ExportReport&) {
  fail("tflite",
       "this build has no FlatBuffers, which the format is made of. Install flatc and its headers (Debian: "
       "flatbuffers-compiler and libflatbuffers-dev; scripts/setup.sh) and build again");
}
#endif

ExportReport write_tflite(const inference::Graph& graph, const std::string& path, const std::string& name,
                          const ExportSpec& spec, ExportReport report) {
  const OutputRounding rule = rule_of(graph);
  report.facts.emplace_back("rounding", concat(enum_name(rule), ": equal codes in ", equal_in(rule),
                                               "; others compute the same network with roundings of their own"));
  if (spec.softmax)
    report.facts.emplace_back("softmax",
                              "equal codes in TensorFlow Lite Micro and LiteRT with its reference kernels; others make "
                              "probabilities of floats, whose codes may differ by one");
  const std::vector<uint8_t> bytes = file_of(graph, name, spec, report);
  if (spec.dry_run) return report;
  report.require_all_held("tflite");
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return report;
}

}  // namespace bitgrad::tflite

namespace bitgrad {

ExportReport export_target_tflite(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  require(
      inference::integer_rule(*source.model).has_value(), "tflite",
      "files of this format hold networks of integers alone, and this model computes in floats. Train it with recipe "
      "int8 (compute: integer), or quantize it: bitgrad quantize RUN --recipe int8 --samples 512");
  const inference::Graph graph = inference::deployed(*source.model, source.spec->input);
  ExportReport report{.variant = "tflite"};
  note_inputs(report, source, spec, graph);
  note_codes(report, graph, spec);
  return tflite::write_tflite(graph, path, source.name, spec, std::move(report));
}

}  // namespace bitgrad
