// ONNX files of networks of integers: what they hold, and that ONNX Runtime (Python of $BITGRAD_PYTHON) computes the
// codes of an int64 reference from them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "export/onnx_integer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_layers.h"
#include "support/integer_nets.h"
#include "support/integer_reference.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = IntegerReference::Codes;
constexpr int kSamples = 30;

// MANIFEST: a line per file: FILE INPUTS OUTPUTS SESSIONS DIM..., values of fp32. Prints a line per file: "ok", or the
// error. SESSIONS any: one without optimizations gives the outputs of the default one.
constexpr const char* kClient = R"py(
import sys, numpy as np, onnx, onnxruntime as ort
def run(f, x, level):
    o = ort.SessionOptions(); o.log_severity_level = 3; o.graph_optimization_level = level
    return ort.InferenceSession(f, o, providers=["CPUExecutionProvider"]).run(None, {"input": x})[0]
for line in open(sys.argv[1]):
    f, x, y, sessions, *dims = line.split()
    try:
        onnx.checker.check_model(onnx.load(f), full_check=True)
        x = np.fromfile(x, np.float32).reshape([int(d) for d in dims])
        out = run(f, x, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
        out.tofile(y)
        same = sessions != "any" or np.array_equal(out, run(f, x, ort.GraphOptimizationLevel.ORT_DISABLE_ALL))
        print("ok" if same else "another session has other outputs")
    except Exception as e:
        print(str(e).replace("\n", " "))
)py";

std::string python() {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  return named != nullptr ? named : "python3";
}
bool has_client() {
  const bool there = run_program({python(), "-c", "import numpy, onnx, onnxruntime"}).code == 0;
  if (!there) WARN("skipped: no onnx and onnxruntime in " + python() + ". Set BITGRAD_PYTHON");
  return there;
}

// The graph with its nodes after `change`; graphs made by hand get the quantizer of their input.
inference::Graph changed(const inference::Graph& graph, const std::function<void(inference::Node&)>& change = {}) {
  inference::Graph out(graph[0].form);
  for (size_t v = 1; v < graph.nodes().size(); ++v) {
    inference::Node node = graph.nodes()[v];
    if (auto* const q = std::get_if<inference::Quantize>(&node.operation); q != nullptr && q->scale.empty()) {
      const inference::CodeScale s = inference::code_scale(node);
      q->spec.dtype = dtypes::int8;
      q->rule = CodeRule::kDivide;
      q->scale = {s.scale};
      q->zero = {s.zero};
    }
    if (change) change(node);
    out.add(std::move(node));
  }
  return out;
}

// Writes `path`; empty: nothing, and `file` gets the nodes.
ExportReport written(const inference::Graph& graph, const std::string& path, ExportSpec spec,
                     onnx::ModelFile* file = nullptr) {
  ExportReport report;
  spec.dry_run = path.empty();
  onnx::GraphBuilder g(graph, spec, report);
  onnx::write_model(g, ExportSource{}, path, spec, onnx::write_integer_node);
  if (file != nullptr) *file = g.file();
  return report;
}

std::vector<onnx::NodeValue> nodes_of(const onnx::ModelFile& file, const std::string& op) {
  std::vector<onnx::NodeValue> out;
  for (const onnx::NodeValue& n : file.nodes)
    if (n.op == op) out.push_back(n);
  return out;
}
const onnx::TensorValue& constant(const onnx::ModelFile& file, const std::string& name) {
  const auto found = std::find_if(file.initializers.begin(), file.initializers.end(),
                                  [&](const onnx::TensorValue& t) { return t.name == name; });
  REQUIRE(found != file.initializers.end());
  return *found;
}
template <typename T>
std::vector<T> numbers(const onnx::ModelFile& file, const std::string& name) {
  const onnx::TensorValue& t = constant(file, name);
  std::vector<T> out(t.bytes.size() / sizeof(T));
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

// A convolution with bounds behind it, and a product of rows.
inference::Graph small_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{4, 4, 2}, rule, 7, 0.5f, -100);
  net.result(0.25f, 3, -10, 90);
  const inference::Value a = net.conv(IntegerNet::kInput, 3, {.kernel = {3, 3}, .padding = {1, 1, 1, 1}}, weights);
  net.result(2.0f, -7);
  net.linear(net.reshape(a, Shape{48}), 5, weights);
  return changed(net.finish());
}

// Without sums, means and products of codes.
inference::Graph plain_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{9, 7, 4}, rule, 8, 0.5f, -100);
  net.result(0, -128);
  const inference::Value a = net.conv(IntegerNet::kInput, 16, {.kernel = {3, 3}, .padding = {1, 0, 1, 1}}, weights);
  const inference::Value b =
      net.conv(a, 16, {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1, 1, 1}, .groups = 16}, weights);
  net.result(0, -90, -90, 40);
  const inference::Value c = net.conv(b, 12, {.kernel = {1, 1}}, weights);
  const inference::Value d = net.table(net.max_pool(c, {{3, 3}, {2, 2}, {1, 1, 1, 1}}));
  net.linear(net.linear(d, 6, weights), 8, weights);
  return changed(net.finish());
}

// Rows, each multiplied by itself, and multipliers above 1.
inference::Graph rows_network(OutputRounding rule, DType weights) {
  IntegerNet net(Shape{5, 12}, rule, 9);
  const inference::Value a = net.linear(IntegerNet::kInput, 12, weights);
  net.result(0.00008f, 20);
  const inference::Value b = net.linear(net.add(a, IntegerNet::kInput), 7, weights);
  net.linear(net.reshape(b, Shape{7, 5}), 3, weights);
  return changed(net.finish());
}

// Files with the inputs and the codes that each is to give.
class Files {
 public:
  void add(const std::string& name, const inference::Graph& graph, const ExportSpec& spec) {
    INFO(name);
    const std::string base = temp_.file(std::to_string(all_.size()));
    CHECK_FALSE(written(graph, base + ".onnx", spec).refused());
    IntegerNet draws(Shape{1}, OutputRounding::kDouble, 5);
    IntegerReference reference(graph);
    const inference::CodeScale in = inference::code_scale(graph[1]),
                               out = inference::code_scale(graph[graph[graph.output()].inputs[0]]);
    One one{name, base, {}};
    std::vector<float> values;
    for (int s = 0; s < kSamples; ++s) {
      Codes x(static_cast<size_t>(graph[1].form.sample.numel()));
      for (int64_t& each : x) each = draws.drawn(-128, 127);
      for (const int64_t each : x) values.push_back(in.scale * static_cast<float>(each - in.zero));
      for (const int64_t each : reference.run(x))
        one.outputs.push_back(out.scale * static_cast<float>(each - out.zero));
    }
    std::ofstream(base + ".x", std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), std::ssize(values) * 4);
    std::ofstream manifest(temp_.file("manifest"), std::ios::app);
    manifest << base << ".onnx " << base << ".x " << base << ".y " << (spec.form == "qdq" ? "default " : "any ")
             << kSamples;
    for (const int64_t d : graph[1].form.sample.dims()) manifest << ' ' << d;
    manifest << '\n';
    all_.push_back(std::move(one));
  }
  // By name: how many codes differ.
  std::map<std::string, int64_t> differing() const {
    const ProcessResult said = run_program({python(), "-c", kClient, temp_.file("manifest")});
    INFO(said.err << said.out);
    REQUIRE(said.code == 0);
    std::istringstream lines(said.out);
    std::map<std::string, int64_t> out;
    for (const One& one : all_) {
      std::string line;
      std::getline(lines, line);
      INFO(one.name);
      REQUIRE(line == "ok");
      const std::string bytes = slurp(one.base + ".y");
      REQUIRE(bytes.size() == one.outputs.size() * sizeof(float));
      for (size_t i = 0; i < one.outputs.size(); ++i)
        out[one.name] += bytes.compare(i * sizeof(float), sizeof(float),
                                       std::string(reinterpret_cast<const char*>(&one.outputs[i]), sizeof(float))) != 0
                             ? 1
                             : 0;
    }
    return out;
  }

 private:
  struct One {
    std::string name, base;
    std::vector<float> outputs;
  };
  TempDir temp_;
  std::vector<One> all_;
};

}  // namespace

TEST_CASE("ONNX files of networks of integers hold codes, scales and zero points") {
  onnx::ModelFile file;
  const inference::Graph graph = small_network(OutputRounding::kFloat, dtypes::int8);
  const ExportReport report = written(graph, "", {}, &file);
  CHECK_FALSE(report.refused());
  const std::vector<onnx::NodeValue> products = nodes_of(file, "QLinearConv");
  REQUIRE(products.size() == 2);
  const auto& conv = std::get<inference::Product>(graph[2].operation);
  const std::vector<std::string>& in = products[0].inputs;
  CHECK(numbers<float>(file, in[1]) == std::vector<float>{0.5f});
  CHECK(numbers<uint8_t>(file, in[2]) == std::vector<uint8_t>{28});  // -100 + 128
  CHECK(constant(file, in[3]).dims == std::vector<int64_t>{3, 2, 3, 3});
  // [o, kh, kw, c] becomes [o, c, kh, kw], each code plus 128.
  const std::vector<uint8_t> weight = numbers<uint8_t>(file, in[3]);
  const std::vector<double> codes = conv.weight.elements();
  for (size_t o = 0; o < 3; ++o)
    for (size_t c = 0; c < 2; ++c)
      for (size_t tap = 0; tap < 9; ++tap)
        CHECK(weight[(o * 2 + c) * 9 + tap] == static_cast<int>(codes[(o * 9 + tap) * 2 + c]) + 128);
  CHECK(numbers<float>(file, in[4]) == conv.weight.quant()->scale->to_vector());
  CHECK(numbers<uint8_t>(file, in[5]) == std::vector<uint8_t>{128, 128, 128});
  CHECK(numbers<float>(file, in[6]) == std::vector<float>{0.25f});
  CHECK(numbers<uint8_t>(file, in[7]) == std::vector<uint8_t>{131});
  const std::vector<int32_t> bias = numbers<int32_t>(file, in[8]);
  for (size_t j = 0; j < 3; ++j) CHECK(bias[j] == conv.bias.as<int32_t>()[j]);
  const std::vector<onnx::NodeValue> bounds = nodes_of(file, "Clip");
  REQUIRE(bounds.size() == 1);
  CHECK(bounds[0].inputs[0] == products[0].outputs[0]);
  CHECK(numbers<uint8_t>(file, bounds[0].inputs[1]) == std::vector<uint8_t>{118});
  CHECK(numbers<uint8_t>(file, bounds[0].inputs[2]) == std::vector<uint8_t>{218});
}

TEST_CASE("Form qdq has float operators between DequantizeLinear and QuantizeLinear") {
  onnx::ModelFile file;
  written(small_network(OutputRounding::kFloat, dtypes::int8), "", {.form = "qdq"}, &file);
  std::map<std::string, std::string> made_by, read_by;
  for (const onnx::NodeValue& n : file.nodes) {
    made_by[n.outputs[0]] = n.op;
    for (const std::string& x : n.inputs) read_by[x] = n.op;
  }
  size_t products = 0;
  for (const onnx::NodeValue& n : file.nodes) {
    if (n.op != "Conv" && n.op != "Gemm") continue;
    ++products;
    REQUIRE(n.inputs.size() == 3);
    for (const std::string& x : n.inputs) CHECK(made_by.at(x) == "DequantizeLinear");
    CHECK(read_by.at(n.outputs[0]) == "QuantizeLinear");
  }
  CHECK(products == 2);
  CHECK(nodes_of(file, "QLinearConv").empty());
}

TEST_CASE("Weights that pairs of products could saturate are UINT8, others have their own type") {
  const auto stored = [](DType weights, const ExportSpec& spec, OutputRounding rule) {
    onnx::ModelFile file;
    const ExportReport report = written(small_network(rule, weights), "", spec, &file);
    return concat(onnx::type_name(constant(file, "layers.conv2.weight").type), ": ", report.layers[1].operation);
  };
  const OutputRounding rule = OutputRounding::kFloat;
  CHECK(stored(dtypes::int8, {}, rule) == "UINT8: QLinearConv, weight int8 as UINT8 (plus 128)");
  CHECK(stored(dtypes::int4, {}, rule) == "INT8: QLinearConv, weight int4 stored as INT8");
  CHECK(stored(dtypes::int4, {.opset = 24}, rule) == "INT4: QLinearConv, weight int4 as INT4");
  CHECK(stored(dtypes::int4, {.form = "qdq"}, rule) == "INT8: Conv between codes, weight int4 stored as INT8");
  CHECK(stored(dtypes::int4, {}, OutputRounding::kDouble) ==
        "UINT8: ConvInteger, output stage in INT64, weight int4 stored as UINT8 (plus 128)");
}

TEST_CASE("Reports say where ONNX Runtime rounds by a rule of its own, and what no file holds") {
  using Fate = ExportedTensor::Fate;
  const auto fates = [](OutputRounding rule, const ExportSpec& spec) {
    std::map<std::string, bool> rounded;  // by operation
    for (const ExportedLayer& l : written(changed(small_resnet(rule, dtypes::int8)), "", spec).layers)
      rounded[l.operation.substr(0, l.operation.find_first_of(" ,"))] |= l.fate == Fate::kRounded;
    return rounded;
  };
  for (const OutputRounding rule : {OutputRounding::kFloat, OutputRounding::kDouble, OutputRounding::kSingle})
    for (const auto& [operation, rounded] : fates(rule, {})) {
      INFO(operation);
      CHECK_FALSE(rounded);
    }
  const auto floats = fates(OutputRounding::kFloat, {.form = "qdq"}),
             integers = fates(OutputRounding::kDouble, {.form = "qdq"});
  CHECK(floats.at("Add"));
  CHECK(floats.at("GlobalAveragePool"));
  CHECK_FALSE(floats.at("Conv"));
  CHECK(integers.at("Conv"));
  CHECK(integers.at("Gemm"));
  // A factor that does not follow from the scales, which are all that a file has.
  const inference::Graph odd = changed(small_network(OutputRounding::kFloat, dtypes::int8), [](inference::Node& n) {
    if (auto* const stage = std::get_if<inference::Requantize>(&n.operation)) stage->factor[1] *= 1.25f;
  });
  for (const char* form : {"integer", "qdq"}) {
    const ExportReport report = written(odd, "", {.form = form});
    CHECK(report.refused());
    CHECK(contains(report.layers[1].reason, "output 1 has the factor"));
  }
}

TEST_CASE("ONNX Runtime computes the codes of networks of integers, by every rule") {
  if (!has_client()) return;
  Files files;
  for (const OutputRounding rule :
       {OutputRounding::kFloat, OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kRuy}) {
    for (const NamedGraph& net : integer_nets(rule)) files.add(net.name, changed(net.graph), {});
    for (const NamedGraph& net : integer_layers::shared_nets(rule)) files.add(net.name, net.graph, {});
    files.add(concat("rows, ", enum_name(rule)), rows_network(rule, dtypes::int4), {});
  }
  for (const DType d : {dtypes::int8, dtypes::int4, dtypes::bint1}) {
    files.add(concat("opset 25, ", d), changed(odd_network(OutputRounding::kFloat, d)), {.opset = 25});
    files.add(concat("opset 25, double, ", d), changed(odd_network(OutputRounding::kDouble, d)), {.opset = 25});
    files.add(concat("opset 27, ", d), changed(small_resnet(OutputRounding::kFloat, d)), {.opset = 27});
  }
  for (const auto& [name, different] : files.differing()) {
    INFO(name);
    CHECK(different == 0);
  }
}

TEST_CASE("ONNX Runtime computes the codes of form qdq by rule float, except those of sums and means") {
  if (!has_client()) return;
  Files exact, close, other;
  for (const DType d : {dtypes::int8, dtypes::int4, dtypes::ternary, dtypes::bint1})
    for (const int opset : {21, 25}) {
      const ExportSpec spec{.form = "qdq", .opset = opset};
      exact.add(concat("plain, ", d, ", opset ", opset), plain_network(OutputRounding::kFloat, d), spec);
      close.add(concat("overlapping, ", d, ", opset ", opset), changed(overlapping_network(OutputRounding::kFloat, d)),
                spec);
      close.add(concat("rows, ", d, ", opset ", opset), rows_network(OutputRounding::kFloat, d), spec);
      close.add(concat("odd, ", d, ", opset ", opset), changed(odd_network(OutputRounding::kFloat, d)), spec);
      other.add(concat("plain, double, ", d, ", opset ", opset), plain_network(OutputRounding::kDouble, d), spec);
    }
  for (const auto& [name, different] : exact.differing()) {
    INFO(name);
    CHECK(different == 0);
  }
  int64_t means = 0, rules = 0;
  for (const auto& [name, different] : close.differing()) means += different;
  for (const auto& [name, different] : other.differing()) rules += different;
  CHECK(means > 0);  // else the report need not say so
  CHECK(rules > 0);
}
