// Writes the nodes of a graph to a file.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string_view>
#include <variant>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "export/onnx_graph.h"
#include "export/targets.h"

namespace bitgrad::onnx {
namespace {

std::vector<int64_t> batch_dims(const Shape& sample, bool any_length) {
  std::vector<int64_t> dims{-1};
  for (const int64_t d : sample.dims()) dims.push_back(any_length && dims.size() == 1 ? -2 : d);
  return dims;
}

// OpenVINO 2026.4 reads blocks of other sizes wrongly, in some products and batches.
std::string openvino_note(const std::vector<NodeValue>& nodes) {
  for (const NodeValue& node : nodes)
    for (const auto& [name, value] : node.attributes)
      if (name == "block_size" && !std::has_single_bit(static_cast<uint64_t>(std::get<int64_t>(value))))
        return concat("; not OpenVINO, which misreads groups of ", std::get<int64_t>(value), ": use a power of two");
  return {};
}

// Oldest version of ONNX Runtime that opens the file; tried with 1.20, 1.22, 1.23, 1.24 and 1.32.
std::string runs_in(GraphBuilder& g) {
  const int opset = g.opset();
  const std::vector<NodeValue>& nodes = g.file().nodes;
  const auto has = [&](std::string_view op) {
    return std::any_of(nodes.begin(), nodes.end(), [&](const NodeValue& n) { return n.op == op; });
  };
  const bool quantizes = has("QuantizeLinear");
  if (opset >= 28 && (quantizes || has("DequantizeLinear")))
    return "no ONNX Runtime up to 1.32, which lacks QuantizeLinear and DequantizeLinear of opset 28. Use --opset 27";
  const char* least = opset <= 21                 ? "1.20"
                      : opset == 22               ? "1.22"
                      : opset == 23 && !quantizes ? "1.23"
                      : opset <= 25               ? "1.24"
                                                  : "1.32";
  return concat("ONNX Runtime ", least, " and later, in a session without options", openvino_note(nodes));
}

Type input_type(const inference::Graph& graph) {
  return graph[0].form.dtype == dtypes::fp32 ? Type::kFloat : Type::kInt64;
}

// The input as the model takes it: `input` itself, or its bytes as data.affine or data.normalize scales them.
std::string scaled_input(GraphBuilder& g, const ExportSource& source, const ExportSpec& spec) {
  if (!spec.with_normalization) return "input";
  require(input_type(g.source()) == Type::kFloat, "onnx", "--with-normalization: the model reads ids. Leave it out");
  g.begin(g.source().nodes()[0]);
  std::string x = g.add("Div", {g.to_float("input"), g.scalar(255.0f)});
  const auto numbers = [&](const std::vector<float>& v) {
    return v.size() == 1 ? g.scalar(v[0]) : g.numbers(v, {static_cast<int64_t>(v.size())});
  };
  if (source.normalize.given())
    return g.add("Div", {g.add("Sub", {x, numbers(source.normalize.mean)}), numbers(source.normalize.std)});
  if (source.affine == std::array<float, 2>{1.0f, 0.0f}) return x;
  return g.add("Add", {g.add("Mul", {x, g.scalar(source.affine[0])}), g.scalar(source.affine[1])});
}

void finish(GraphBuilder& g, const ExportSource& source, const ExportSpec& spec) {
  const inference::Graph& graph = g.source();
  ModelFile& file = g.file();
  const Stand last = g.channels_last(graph.output());
  std::set<std::string> read;
  for (const NodeValue& n : file.nodes) read.insert(n.inputs.begin(), n.inputs.end());
  std::erase_if(file.initializers, [&](const TensorValue& t) { return !read.contains(t.name); });
  file.nodes.push_back({"Identity", "", "output/Identity", {last.name}, {"output"}, {}});
  file.graph_name = source.name;
  file.opsets.emplace_back("", g.opset());
  for (const NodeValue& n : file.nodes)
    if (!n.domain.empty() && file.opsets.size() == 1) file.opsets.emplace_back(n.domain, 1);
  const bool any = any_length(graph);
  file.inputs.push_back(
      {"input", spec.with_normalization ? Type::kUint8 : input_type(graph), batch_dims(graph[0].form.sample, any)});
  file.outputs.push_back({"output", last.type, batch_dims(graph[graph.output()].form.sample, any)});
  file.metadata.emplace_back("bitgrad.form", g.report().family);
  for (const auto& [key, text] : input_metadata(source, spec, graph)) file.metadata.emplace_back(key, text);
}

}  // namespace

ExportReport write_model(GraphBuilder& g, const ExportSource& source, const std::string& path, const ExportSpec& spec,
                         Stand (*write)(GraphBuilder&, const inference::Node&)) {
  g.set(0, {scaled_input(g, source, spec), input_type(g.source()), false, "", ""});
  for (size_t i = 1; i < g.source().nodes().size(); ++i) {
    const inference::Node& node = g.source().nodes()[i];
    g.begin(node);
    Stand made{"refused", Type::kFloat, false, "", ""};
    if (node.form.dtype == dtypes::bf16)
      g.refuse("values", "values between layers are bf16. Set model.values: fp32");
    else
      made = write(g, node);
    g.set(static_cast<inference::Value>(i), std::move(made));
  }
  if (g.report().family != "qonnx") g.report().facts.emplace_back("runs in", runs_in(g));
  note_inputs(g.report(), source, spec, g.source());
  if (spec.dry_run) return g.report();
  require_all_held(g.report(), "export");
  finish(g, source, spec);
  const std::vector<uint8_t> bytes = encode(g.file());
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return g.report();
}

}  // namespace bitgrad::onnx
