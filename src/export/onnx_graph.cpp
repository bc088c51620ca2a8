#include "export/onnx_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <variant>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/nn/integer_graph.h"
#include "export/onnx_integer.h"
#include "export/targets.h"

namespace bitgrad::onnx {

GraphBuilder::GraphBuilder(const inference::Graph& graph, const ExportSpec& spec, ExportReport& report)
    : source_(graph), qdq_(spec.form == "qdq"), opset_(spec.opset == 0 ? 21 : spec.opset), report_(report) {
  file_.ir_version = opset_ >= 25 ? 13 : 10;
}

std::string GraphBuilder::unique(const std::string& name) {
  const int count = names_[name]++;
  return count == 0 ? name : concat(name, '.', count);
}

std::string GraphBuilder::add(const std::string& op, std::vector<std::string> inputs, NodeAttributes attributes,
                              const std::string& domain) {
  std::string name = unique(concat(node_ == nullptr ? "model" : node_->layer, '/', op));
  file_.nodes.push_back({op, domain, name, std::move(inputs), {name}, std::move(attributes)});
  return name;
}

std::string GraphBuilder::tensor(TensorValue value) {
  value.name = unique(value.name);
  file_.initializers.push_back(std::move(value));
  return file_.initializers.back().name;
}

std::string GraphBuilder::numbers(const std::vector<float>& x, std::vector<int64_t> dims) {
  TensorValue t = tensor_of("number", std::move(dims), x);
  if (x.size() > 1) {
    t.name = concat(node_->layer, ".numbers");
    return tensor(std::move(t));
  }
  const std::string key = concat("f", t.dims.size(), '/', std::string(t.bytes.begin(), t.bytes.end()));
  return once(key, [&] { return tensor(std::move(t)); });
}

std::string GraphBuilder::once(const std::string& key, const std::function<std::string()>& make) {
  const auto found = constants_.find(key);
  return found != constants_.end() ? found->second : constants_[key] = make();
}

std::string GraphBuilder::positions(inference::Value sequence) {
  return once(concat("positions ", source_[sequence].form.sample[0]), [&] {
    return add("Shape", {stand(sequence).name}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  });
}

std::string GraphBuilder::integers(const std::vector<int64_t>& x, std::vector<int64_t> dims, Type type) {
  std::string key = concat("i", static_cast<int>(type), '/', dims.size(), '/');
  for (const int64_t each : x) key += concat(each, ',');
  return once(key, [&] { return tensor(tensor_of("integers", type, std::move(dims), x)); });
}

std::string GraphBuilder::per_feature(const std::vector<float>& x, const OnnxValue& like) {
  if (x.size() == 1) return scalar(x[0]);
  const auto count = static_cast<int64_t>(x.size());
  return numbers(x, like.channels_first ? std::vector<int64_t>{count, 1, 1} : std::vector<int64_t>{count});
}

OnnxValue GraphBuilder::in_order(inference::Value value, bool first) {
  const OnnxValue& now = stands_.at(value);
  if (now.channels_first == first || source_[value].form.sample.rank() != 3) return now;
  const auto found = nchw_.find(value);
  if (found != nchw_.end()) return found->second;
  OnnxValue turned = now;
  turned.name = add("Transpose", {now.name},
                    {{"perm", first ? std::vector<int64_t>{0, 3, 1, 2} : std::vector<int64_t>{0, 2, 3, 1}}});
  turned.channels_first = first;
  return nchw_[value] = turned;
}

void GraphBuilder::note(std::string operation, ExportedTensor::Fate fate, double error, std::string reason) {
  report_.layers.push_back({node_->layer, std::move(operation), fate, error, std::move(reason)});
}

void GraphBuilder::note_codes(std::string operation, const std::vector<float>& steps) {
  const auto rounded = std::find_if(report_.layers.begin(), report_.layers.end(),
                                    [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kRounded; });
  std::string reason;
  if (rounded != report_.layers.end()) {
    reason = concat(
        "of numbers behind ", rounded->layer,
        ", which the client rounds in its own order: a value near the middle of two codes may round to the other");
    if (!steps.empty()) reason += concat(", a step of ", *std::max_element(steps.begin(), steps.end()));
  }
  note(std::move(operation), ExportedTensor::Fate::kExact, 0, std::move(reason));
}

bool power_of_two(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5f;
}

Type byte_type(DType dtype) {
  return dtype.kind() == DTypeKind::kUint || dtype.kind() == DTypeKind::kCodebook ? Type::kUint8 : Type::kInt8;
}

std::vector<int64_t> weight_dims(const inference::Product& op) {
  const int64_t o = op.weight.rows(), k = op.weight.cols();
  if (!op.conv) return {k, o};
  const int64_t taps = op.conv->kernel[0] * op.conv->kernel[1];
  return {o, k / taps, op.conv->kernel[0], op.conv->kernel[1]};
}

// Writes the nodes of a graph to a file.

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
  const OnnxValue last = g.channels_last(graph.output());
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
  file.metadata.emplace_back("bitgrad.form", g.report().variant);
  for (const auto& [key, text] : input_metadata(source, spec, graph)) file.metadata.emplace_back(key, text);
}

}  // namespace

ExportReport write_model(GraphBuilder& g, const ExportSource& source, const std::string& path, const ExportSpec& spec,
                         OnnxValue (*write)(GraphBuilder&, const inference::Node&)) {
  g.set(0, {scaled_input(g, source, spec), input_type(g.source()), false, "", ""});
  for (size_t i = 1; i < g.source().nodes().size(); ++i) {
    const inference::Node& node = g.source().nodes()[i];
    g.begin(node);
    OnnxValue made{"refused", Type::kFloat, false, "", ""};
    if (node.form.dtype == dtypes::bf16)
      g.refuse("values", "values between layers are bf16. Set model.values: fp32");
    else
      made = write(g, node);
    g.set(static_cast<inference::Value>(i), std::move(made));
  }
  if (g.report().variant != "qonnx") g.report().facts.emplace_back("runs in", runs_in(g));
  note_inputs(g.report(), source, spec, g.source());
  if (spec.dry_run) return g.report();
  g.report().require_all_held("export");
  finish(g, source, spec);
  const std::vector<uint8_t> bytes = encode(g.file());
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return g.report();
}

}  // namespace bitgrad::onnx

namespace bitgrad {
// A model as an ONNX file. Input [N, sample...] as in bitgrad (images are [N,h,w,c]), output as the model's.

namespace {

void check_values(const ExportSpec& spec) {
  require(spec.form.empty() || spec.form == "integer" || spec.form == "qdq", "onnx", "--form: got ", spec.form,
          ", expected integer or qdq");
  require(spec.opset == 0 || (spec.opset >= 21 && spec.opset <= 28), "onnx", "--opset: got ", spec.opset,
          ", expected 21 to 28");
}

}  // namespace

ExportReport export_target_onnx(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  check_values(spec);
  const std::optional<OutputRounding> rule = inference::integer_rule(*source.model);
  const inference::Graph graph = inference::deployed(*source.model, source.spec->input);
  ExportReport report{.variant = spec.form.empty() ? "integer" : spec.form};
  onnx::GraphBuilder g(graph, spec, report);
  if (rule) onnx::note_rounding(report, *rule, g.qdq());
  return onnx::write_model(g, source, path, spec, rule ? onnx::write_integer_node : onnx::write_node);
}

}  // namespace bitgrad
