// Writes the nodes of a graph to a file.
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "train/export/onnx_graph.h"
#include "train/export/report.h"

namespace bitgrad::onnx {
namespace {

std::vector<int64_t> batch_dims(const Shape& sample) {
  std::vector<int64_t> dims{-1};
  for (const int64_t d : sample.dims()) dims.push_back(d);
  return dims;
}

void finish(GraphBuilder& g, const ExportSource& source) {
  const inference::Graph& graph = g.source();
  ModelFile& file = g.file();
  const Stand last = g.channels_last(graph.output());
  file.nodes.push_back({"Identity", "", "output/Identity", {last.name}, {"output"}, {}});
  file.graph_name = source.name;
  file.opsets.emplace_back("", g.opset());
  for (const NodeValue& n : file.nodes)
    if (!n.domain.empty() && file.opsets.size() == 1) file.opsets.emplace_back(n.domain, 1);
  file.inputs.push_back({"input", Type::kFloat, batch_dims(graph[0].form.sample)});
  file.outputs.push_back({"output", last.type, batch_dims(graph[graph.output()].form.sample)});
  file.metadata.emplace_back("bitgrad.form", g.report().family);
}

}  // namespace

ExportReport write_model(GraphBuilder& g, const ExportSource& source, const std::string& path, const ExportSpec& spec,
                         Stand (*write)(GraphBuilder&, const inference::Node&)) {
  g.set(0, {"input", Type::kFloat, false, "", ""});
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
  if (spec.dry_run) return g.report();
  require_all_held(g.report(), "export");
  finish(g, source);
  const std::vector<uint8_t> bytes = encode(g.file());
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return g.report();
}

}  // namespace bitgrad::onnx
