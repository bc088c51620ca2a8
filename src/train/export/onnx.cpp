// A model as an ONNX file. Input [N, sample...] as ours (images [N,h,w,c]), output as the model's.
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "io/onnx_file.h"
#include "train/export/onnx_graph.h"
#include "train/export/report.h"
#include "train/export/targets.h"

namespace bitgrad {
namespace {

constexpr std::string_view kOnnx = "onnx";

std::vector<int64_t> batch_dims(const Shape& sample) {
  std::vector<int64_t> dims{-1};
  for (const int64_t d : sample.dims()) dims.push_back(d);
  return dims;
}

void check_options(const ExportSpec& spec) {
  require(spec.form.empty() || spec.form == "integer" || spec.form == "qdq", kOnnx, "--form: got ", spec.form,
          ", expected integer or qdq");
  require(spec.opset == 0 || (spec.opset >= 21 && spec.opset <= 28), kOnnx, "--opset: got ", spec.opset,
          ", expected 21 to 28");
}

void finish(onnx::GraphBuilder& g, const ExportSource& source) {
  const inference::Graph& graph = g.source();
  onnx::ModelFile& file = g.file();
  const onnx::Stand last = g.channels_last(graph.output());
  file.nodes.push_back({"Identity", "", "output/Identity", {last.name}, {"output"}, {}});
  file.graph_name = source.name;
  file.opsets.emplace_back("", g.opset());
  for (const onnx::NodeValue& n : file.nodes)
    if (!n.domain.empty() && file.opsets.size() == 1) file.opsets.emplace_back(n.domain, 1);
  file.inputs.push_back({"input", onnx::Type::kFloat, batch_dims(graph[0].form.sample)});
  file.outputs.push_back({"output", last.type, batch_dims(graph[graph.output()].form.sample)});
  file.metadata.emplace_back("bitgrad.form", g.report().family);
}

}  // namespace

ExportReport export_target_onnx(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const DeviceGuard host(Device::cpu());
  check_options(spec);
  const inference::Graph graph = inference::lowered(*source.model, source.spec->input);
  ExportReport report;
  report.family = spec.form.empty() ? "integer" : spec.form;
  onnx::GraphBuilder g(graph, spec, report);
  g.set(0, {"input", onnx::Type::kFloat, false, "", ""});
  for (size_t i = 1; i < graph.nodes().size(); ++i) {
    const inference::Node& node = graph.nodes()[i];
    g.begin(node);
    if (node.form.dtype == dtypes::bf16)
      g.refuse("values", "values between layers are bf16. Set model.values: fp32");
    else
      g.set(static_cast<inference::Value>(i), onnx::write_other(g, node));
    if (report.refused()) g.set(static_cast<inference::Value>(i), {"refused", onnx::Type::kFloat, false, "", ""});
  }
  if (spec.dry_run) return report;
  require_none_refused_layers(report, kOnnx);
  finish(g, source);
  const std::vector<uint8_t> bytes = onnx::encode(g.file());
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return report;
}

}  // namespace bitgrad
