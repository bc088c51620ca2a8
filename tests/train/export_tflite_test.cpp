// Files of TensorFlow Lite: LiteRT and TensorFlow Lite Micro (Python of $BITGRAD_PYTHON) compute the codes of an int64
// reference with the kernels of the model's rule, and others with those of another.
#include <cstdlib>
#include <fstream>

#include "bitgrad/quant/fixed_softmax.h"
#include "export/tflite.h"
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
constexpr int kSamples = 40;

// FILE KERNELS INPUTS OUTPUTS: codes in, codes out, sample by sample.
constexpr const char* kLiteRt = R"py(
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
kernels = {"reference": OpResolverType.BUILTIN_REF, "optimized": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, "xnnpack": OpResolverType.AUTO}
i = Interpreter(sys.argv[1], experimental_op_resolver_type=kernels[sys.argv[2]], num_threads=1)
s = i.get_signature_runner("serving_default")
assert list(s.get_input_details()) == ["input"] and list(s.get_output_details()) == ["output"]
del s
i.allocate_tensors()
a, b = i.get_input_details()[0], i.get_output_details()[0]
x = np.fromfile(sys.argv[3], np.int8).reshape(-1, *a["shape"])
with open(sys.argv[4], "wb") as f:
    for v in x:
        i.set_tensor(a["index"], v); i.invoke(); i.get_tensor(b["index"]).tofile(f)
)py";
// The same; its one set of kernels rounds by rule double.
constexpr const char* kMicro = R"py(
import sys, numpy as np
from tflite_micro import runtime
i = runtime.Interpreter.from_file(sys.argv[1], arena_size=1 << 22)
a = i.get_input_details(0)
with open(sys.argv[4], "wb") as f:
    for v in np.fromfile(sys.argv[3], np.int8).reshape(-1, *a["shape"]):
        i.set_input(v, 0); i.invoke(); i.get_output(0).tofile(f)
)py";

std::string python() {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  return named != nullptr ? named : "python3";
}

bool has(const std::string& package) {
  const bool there = run_program({python(), "-c", "import numpy, " + package}).code == 0;
  if (!there) WARN("skipped: no " + package + " in " + python() + ". Set BITGRAD_PYTHON");
  return there;
}

struct Drawn {
  std::vector<Codes> inputs, outputs;
};

Codes softmax_rows(const inference::Graph& graph, const Codes& y) {
  const inference::Node& last = graph[graph[graph.output()].inputs[0]];
  const FixedSoftmax form = fixed_softmax(static_cast<double>(inference::code_scale(last).scale));
  std::vector<int8_t> codes(y.begin(), y.end());
  const int64_t n = last.form.features();
  for (int64_t at = 0; at < std::ssize(codes); at += n) softmax_codes(form, codes.data() + at, n, codes.data() + at);
  return {codes.begin(), codes.end()};
}

// softmax: of the outputs.
Drawn drawn(const inference::Graph& graph, const std::string& file, bool softmax = false) {
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, 5);
  IntegerReference reference(graph);
  Drawn out;
  std::ofstream bytes(file, std::ios::binary);
  for (int s = 0; s < kSamples; ++s) {
    Codes x(static_cast<size_t>(graph[1].form.sample.numel()));
    for (int64_t& each : x) each = draws.drawn(-128, 127);
    for (const int64_t each : x) bytes.put(static_cast<char>(each));
    out.outputs.push_back(reference.run(x));
    if (softmax) out.outputs.back() = softmax_rows(graph, out.outputs.back());
    out.inputs.push_back(std::move(x));
  }
  return out;
}

// Codes of the file in the client that differ from the reference.
int64_t differing(const TempDir& temp, const std::string& client, const std::string& kernels, const Drawn& codes) {
  const ProcessResult r =
      run_program({python(), "-c", client, temp.file("net.tflite"), kernels, temp.file("x"), temp.file("y")});
  INFO(r.err.substr(r.err.size() > 3000 ? r.err.size() - 3000 : 0));
  REQUIRE(r.code == 0);
  const std::string y = slurp(temp.file("y"));
  size_t at = 0;
  int64_t different = 0;
  REQUIRE(y.size() == codes.outputs.size() * codes.outputs[0].size());
  for (const Codes& row : codes.outputs)
    for (const int64_t each : row) different += static_cast<int8_t>(y[at++]) != each ? 1 : 0;
  return different;
}

void write_file(const TempDir& temp, const inference::Graph& graph, bool softmax = false) {
  const ExportReport report = tflite::write_tflite(graph, temp.file("net.tflite"), "net", {.softmax = softmax}, {});
  CHECK_FALSE(report.refused());
}

}  // namespace

TEST_CASE("LiteRT computes the codes of the model's rule") {
  if (!has("ai_edge_litert.interpreter")) return;
  const TempDir temp;
  const std::pair<OutputRounding, std::string> kernels[] = {{OutputRounding::kDouble, "reference"},
                                                            {OutputRounding::kFloat, "xnnpack"}};
  for (const auto& [rule, its] : kernels) {
    int64_t otherwise = 0;
    for (const NamedGraph& net : integer_nets(rule)) {
      INFO(net.name);
      write_file(temp, net.graph);
      const Drawn codes = drawn(net.graph, temp.file("x"));
      CHECK(differing(temp, kLiteRt, its, codes) == 0);
      otherwise += differing(temp, kLiteRt, rule == OutputRounding::kDouble ? "xnnpack" : "reference", codes);
    }
    INFO(its);
    CHECK(otherwise > 0);  // else the rules are not told apart
    for (const NamedGraph& net : integer_layers::shared_nets(rule)) {
      INFO(net.name);
      write_file(temp, net.graph);
      CHECK(differing(temp, kLiteRt, its, drawn(net.graph, temp.file("x"))) == 0);
    }
  }
}

TEST_CASE("TensorFlow Lite Micro computes the codes of rule double") {
  if (!has("tflite_micro")) return;
  const TempDir temp;
  for (auto* const listed : {integer_nets, integer_layers::shared_nets})
    for (const NamedGraph& net : listed(OutputRounding::kDouble)) {
      INFO(net.name);
      write_file(temp, net.graph);
      CHECK(differing(temp, kMicro, "", drawn(net.graph, temp.file("x"))) == 0);
    }
  int64_t otherwise = 0;
  for (const NamedGraph& net : integer_nets(OutputRounding::kSingle)) {
    write_file(temp, net.graph);
    otherwise += differing(temp, kMicro, "", drawn(net.graph, temp.file("x")));
  }
  CHECK(otherwise > 0);  // else the rules are not told apart
}

TEST_CASE("LiteRT's reference kernels and TensorFlow Lite Micro compute the softmax of --softmax") {
  const std::pair<std::string, std::string> clients[] = {{"ai_edge_litert.interpreter", kLiteRt},
                                                         {"tflite_micro", kMicro}};
  for (const auto& [package, client] : clients) {
    if (!has(package)) continue;
    const TempDir temp;
    int compared = 0;
    for (const NamedGraph& net : integer_nets(OutputRounding::kDouble)) {
      INFO(package << ", " << net.name);
      const float scale = inference::code_scale(net.graph[net.graph[net.graph.output()].inputs[0]]).scale;
      if (scale <= 0x1p-26f || scale >= 16) continue;  // of drawn multipliers
      ++compared;
      write_file(temp, net.graph, true);
      CHECK(differing(temp, client, "reference", drawn(net.graph, temp.file("x"), true)) == 0);
    }
    CHECK(compared > 10);
  }
}

TEST_CASE("Files of ResNet-8 for TensorFlow Lite have at most the bytes of those of its converter") {
  const TempDir temp;
  for (const auto& [weights, most] : {std::pair<DType, int64_t>{dtypes::int8, 98'496}, {dtypes::int4, 62'000}}) {
    INFO(weights);
    write_file(temp, small_resnet(OutputRounding::kDouble, weights, 32, 16));
    CHECK(std::ssize(slurp(temp.file("net.tflite"))) <= most);
  }
}
