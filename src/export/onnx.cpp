// A model as an ONNX file. Input [N, sample...] as in bitgrad (images are [N,h,w,c]), output as the model's.
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "export/onnx_graph.h"
#include "export/targets.h"

namespace bitgrad {
namespace {

constexpr std::string_view kOnnx = "onnx";

void check_options(const ExportSpec& spec) {
  require(spec.form.empty() || spec.form == "integer" || spec.form == "qdq", kOnnx, "--form: got ", spec.form,
          ", expected integer or qdq");
  require(spec.opset == 0 || (spec.opset >= 21 && spec.opset <= 28), kOnnx, "--opset: got ", spec.opset,
          ", expected 21 to 28");
}

}  // namespace

ExportReport export_target_onnx(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  const DeviceGuard host(Device::cpu());
  check_options(spec);
  const inference::Graph graph = inference::lowered(*source.model, source.spec->input);
  ExportReport report;
  report.family = spec.form.empty() ? "integer" : spec.form;
  onnx::GraphBuilder g(graph, spec, report);
  return onnx::write_model(g, source, path, spec, onnx::write_node);
}

}  // namespace bitgrad
