// Nodes of exported ONNX files that clients are known to misread; needs none of them. scripts/clients.sh runs them.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "bitgrad/nn/inference.h"
#include "export/onnx_graph.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

int64_t block_size(const onnx::NodeValue& node) {
  for (const auto& [name, value] : node.attributes)
    if (name == "block_size") return std::get<int64_t>(value);
  return 0;
}

// The nodes of a file, and what their inputs are.
struct Nodes {
  explicit Nodes(const onnx::ModelFile& file) : file(file) {
    for (const onnx::NodeValue& node : file.nodes) made_by[node.outputs[0]] = &node;
    for (const onnx::TensorValue& t : file.initializers) constants[t.name] = &t;
  }
  bool makes(const std::string& name, const std::string& op) const {
    const auto found = made_by.find(name);
    return found != made_by.end() && found->second->op == op;
  }
  // The stored codes of a DequantizeLinear, also widened ones.
  const onnx::TensorValue* codes(const onnx::NodeValue& node) const {
    const std::string& name = makes(node.inputs[0], "Cast") ? made_by.at(node.inputs[0])->inputs[0] : node.inputs[0];
    const auto found = constants.find(name);
    return found == constants.end() ? nullptr : found->second;
  }
  bool has(const std::string& name) const { return made_by.contains(name); }

  const onnx::ModelFile& file;
  std::map<std::string, const onnx::NodeValue*> made_by;
  std::map<std::string, const onnx::TensorValue*> constants;
};

// The faults of a file of the network below, one a line.
std::string faults_of(const onnx::ModelFile& file, const std::map<std::string, int64_t>& inputs_of) {
  const Nodes nodes(file);
  std::string faults;
  for (const onnx::NodeValue& node : file.nodes) {
    if (node.op == "DequantizeLinear" && block_size(node) > 0) {
      const onnx::TensorValue* codes = nodes.codes(node);
      if (codes == nullptr || codes->dims.back() % block_size(node) != 0)
        faults += node.name + ": blocks that do not divide the columns, which OpenVINO refuses\n";
    }
    if (node.op == "Transpose" && nodes.makes(node.inputs[0], "DequantizeLinear") &&
        block_size(*nodes.made_by.at(node.inputs[0])) == 0)
      faults += node.name + ": a Transpose behind scales of rows, which ONNX Runtime before 1.32 does not open\n";
    if (node.op == "MatMul" && nodes.makes(node.inputs[1], "DequantizeLinear") &&
        !nodes.makes(node.inputs[0], "DequantizeLinear"))
      faults += node.name + ": ONNX Runtime 1.32 rounds the inputs to 8 bits\n";
  }
  for (const auto& [layer, inputs] : inputs_of) {
    const auto codes = nodes.constants.find(layer + ".weight");
    if (codes == nodes.constants.end() || onnx::type_bits(codes->second->type) != 4 || inputs % 2 == 0) continue;
    if (!nodes.has(layer + "/Slice"))
      faults += layer + ": 4 bits of an odd number of inputs, which OpenVINO misreads\n";
  }
  return faults;
}

}  // namespace

TEST_CASE("Exported weights of odd sizes have no nodes that a client misreads") {
  const KeepModes keep;
  // Fewer inputs than a group, one and a part, odd ones.
  const std::string layers =
      "[{linear: {out: 13}}, {linear: {out: 37}}, {relu: {}}, {linear: {out: 8}}, {linear: {out: 10}}]";
  const std::map<std::string, int64_t> inputs_of{
      {"layers.0", 784}, {"layers.1", 13}, {"layers.3", 37}, {"layers.4", 8}};
  for (const std::string quant : {"recipe: 8da4w", "recipe: int2wo", "recipe: int4wo", "recipe: int4wo_symmetric",
                                  "recipe: int5wo", "recipe: nf4wo", "recipe: ternary_wo", "recipe: w4a8",
                                  "recipe: w4a4", "weights: {dtype: uint4, scheme: affine, granularity: group(16)}"}) {
    const auto trainer = trained({quant, layers, quant});
    const std::optional<ModelRecord> record = model_record(trainer->learner());
    const inference::Graph graph = inference::lowered(trainer->learner().model(), record->model.input);
    for (const char* form : {"integer", "qdq"})
      for (const int opset : {21, 24, 25}) {
        INFO(quant << ", form " << form << ", opset " << opset);
        const ExportSpec spec{.dry_run = true, .form = form, .opset = opset};
        ExportReport report;
        onnx::GraphBuilder g(graph, spec, report);
        onnx::write_model(g, {&trainer->learner().model(), &record->model}, "", spec, onnx::write_node);
        CHECK_FALSE(report.refused());
        const std::string faults = faults_of(g.file(), inputs_of);
        INFO(faults);
        CHECK(faults.empty());
      }
  }
}

TEST_CASE("A norm of one number is its shift, which every ONNX Runtime opens") {
  const KeepModes keep;
  const auto trainer = trained({"one", "[{linear: {out: 1}}, {layer_norm: {}}, {linear: {out: 10}}]", ""});
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  const inference::Graph graph = inference::lowered(trainer->learner().model(), record->model.input);
  const ExportSpec spec{.dry_run = true};
  ExportReport report;
  onnx::GraphBuilder g(graph, spec, report);
  onnx::write_model(g, {&trainer->learner().model(), &record->model}, "", spec, onnx::write_node);
  const std::vector<onnx::NodeValue>& nodes = g.file().nodes;
  const auto count = [&](const std::string& op) {
    return std::count_if(nodes.begin(), nodes.end(), [&](const onnx::NodeValue& n) { return n.op == op; });
  };
  CHECK(count("LayerNormalization") == 0);
  CHECK(count("Sub") == 1);
}

TEST_CASE("The oldest ONNX Runtime of a report has the operators of the file") {
  const KeepModes keep;
  const auto runs_in = [](const std::string& form, int opset, const std::string& quant = "recipe: w8a8_static") {
    const auto trainer = trained({"versions", "[{linear: {out: 10}}]", quant});
    const std::optional<ModelRecord> record = model_record(trainer->learner());
    const ExportSource source{&trainer->learner().model(), &record->model};
    const ExportSpec spec{.dry_run = true, .form = form, .opset = opset};
    for (const auto& [name, text] : choose_export_target("m.onnx", "").write(source, "m.onnx", spec).facts)
      if (name == "runs in") return text;
    return std::string();
  };
  CHECK(runs_in("integer", 22).starts_with("ONNX Runtime 1.22 and later"));
  CHECK(runs_in("integer", 23).starts_with("ONNX Runtime 1.23 and later"));
  CHECK(runs_in("qdq", 23).starts_with("ONNX Runtime 1.24 and later"));
  CHECK(runs_in("qdq", 27).starts_with("ONNX Runtime 1.32 and later"));
  CHECK(runs_in("integer", 28).starts_with("ONNX Runtime 1.32 and later"));
  CHECK(runs_in("qdq", 28).starts_with("no ONNX Runtime up to 1.32"));
  const std::string groups = "weights: {dtype: int4, scheme: absmax, granularity: group(%)}";
  const auto of = [&](const char* size) { return std::string(groups).replace(groups.find('%'), 1, size); };
  CHECK(contains(runs_in("qdq", 21, of("48")), "not OpenVINO, which misreads groups of 48"));
  CHECK_FALSE(contains(runs_in("qdq", 21, of("64")), "OpenVINO"));
}
