#include "check_export.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/quant/fixed_softmax.h"
#include "bitgrad/run/trainer.h"
#include "table.h"

extern char** environ;

namespace bitgrad::cli {
namespace {

constexpr std::string_view kCheck = "--check";
constexpr int64_t kBlock =
    256;  // samples at once in networks of integers, whose results are those of each sample alone

// Arguments of each client: FILE INPUTS OUTPUTS DIM...; inputs are raw fp32, or bytes or int64 where the file takes
// these, outputs raw fp32.
constexpr const char* kOnnxClient = R"py(
import sys, numpy as np, onnxruntime as ort
o = ort.SessionOptions(); o.log_severity_level = 3
s = ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
t = {"tensor(uint8)": np.uint8, "tensor(int64)": np.int64}.get(s.get_inputs()[0].type, np.float32)
x = np.fromfile(sys.argv[2], t).reshape([int(d) for d in sys.argv[4:]])
s.run(None, {"input": x})[0].astype(np.float32).tofile(sys.argv[3])
)py";
constexpr const char* kQonnxClient = R"py(
import sys, numpy as np, qonnx.core.onnx_exec as ex
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.infer_shapes import InferShapes
m = ModelWrapper(sys.argv[1]); d = [int(v) for v in sys.argv[4:]]
m.set_tensor_shape("input", [1] + d[1:]); m = m.transform(InferShapes())
x = np.fromfile(sys.argv[2], np.float32).reshape(d)
np.concatenate([ex.execute_onnx(m, {"input": v[None]})["output"] for v in x]).astype(np.float32).tofile(sys.argv[3])
)py";
// The kernels of LiteRT that round as the model does stand before this text.
constexpr const char* kTfliteClient = R"py(
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
i = Interpreter(sys.argv[1], experimental_op_resolver_type=getattr(OpResolverType, kernels), num_threads=1)
i.allocate_tensors()
a, b = i.get_input_details()[0], i.get_output_details()[0]
with open(sys.argv[3], "wb") as f:
    for v in np.fromfile(sys.argv[2], np.int8).reshape([-1] + list(a["shape"])):
        i.set_tensor(a["index"], v); i.invoke(); i.get_tensor(b["index"]).astype(np.float32).tofile(f)
)py";
constexpr const char* kMicroClient = R"py(
import sys, numpy as np
from tflite_micro import runtime
i = runtime.Interpreter.from_file(sys.argv[1], arena_size=1 << 26)
a = i.get_input_details(0)
with open(sys.argv[3], "wb") as f:
    for v in np.fromfile(sys.argv[2], np.int8).reshape([-1] + list(a["shape"])):
        i.set_input(v, 0); i.invoke(); i.get_output(0).astype(np.float32).tofile(f)
)py";
// PREDICT(in, out) returns 0; of networks of integers that take codes or bytes it cannot fail.
constexpr const char* kCMain = R"c(
#include <stdio.h>
int main(int argc, char **argv) {
  static NAME(_input) in[NAME(_inputs)]; static NAME(_output) out[NAME(_outputs)];
  FILE *from = fopen(argv[argc - 2], "rb"), *to = fopen(argv[argc - 1], "wb");
  if (!from || !to) return 1;
  while (fread(in, sizeof in, 1, from) == 1) {
    size_t i; float y;
    if (PREDICT(in, out) != 0) return 2;
    for (i = 0; i < sizeof out / sizeof out[0]; ++i) { y = (float)out[i]; if (fwrite(&y, sizeof y, 1, to) != 1) return 3; }
  }
  return fclose(to) == 0 ? 0 : 4;
}
)c";

// The programs that run files of a target: in Python, or (no script) as C. rules: those by which the program rounds
// networks of integers that are files of codes.
struct Client {
  std::string_view target;
  const char *name, *packages, *script;
  std::string_view rules = "";
  bool rounds_by(OutputRounding rule) const { return rules.find(enum_name(rule)) != std::string_view::npos; }
};
constexpr Client kClients[] = {{"onnx", "ONNX Runtime", "numpy, onnxruntime", kOnnxClient},
                               {"qonnx", "qonnx", "numpy, qonnx", kQonnxClient},
                               {"tflite", "LiteRT", "numpy, ai_edge_litert", kTfliteClient, "double float"},
                               {"tflite", "TensorFlow Lite Micro", "numpy, tflite_micro", kMicroClient, "double"},
                               {"c", "C", "", nullptr, "double single float"}};
std::vector<Client> clients_of(const ExportTarget& target) {
  std::vector<Client> out;
  for (const Client& c : kClients)
    if (c.target == target.name) out.push_back(c);
  require(!out.empty(), kCheck, "format ", target.name, " has no client that is known here");
  return out;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bitgrad-check-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, kCheck, "cannot make a temporary folder ", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

std::string variable(const char* name, const char* standard) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : standard;
}
std::string python() { return variable("BITGRAD_PYTHON", "python3"); }
std::string compiler() { return variable("CC", "cc"); }

// Returns the exit code, 127 if the program does not start. Its output goes to `log`.
int run(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || ::waitpid(pid, &status, 0) < 0) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string text_of_file(const std::string& path) {
  const std::vector<uint8_t> bytes = file_system().read(path);
  return printable_lines(std::string(bytes.begin(), bytes.end()).substr(0, 2000));
}

// Random samples of the model; from_bytes: random bytes, which `bytes` gets, and the values that the run makes of them.
Tensor drawn_samples(const Form& input, const DataSection& data, int64_t samples, bool from_bytes,
                     std::vector<uint8_t>& bytes) {
  std::vector<int64_t> dims{samples};
  for (const int64_t d : input.sample.dims()) dims.push_back(d);
  const bool ids = input.ids > 0 && !from_bytes;
  Tensor x = Tensor::empty(Shape(dims), ids ? dtypes::int64 : dtypes::fp32);
  const RandomStream draws{1, Purpose::kInit, 0, 0};
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    if (from_bytes)
      bytes.push_back(static_cast<uint8_t>(256 * draws.uniform(at)));
    else if (ids)
      x.as<int64_t>()[i] = static_cast<int64_t>(draws.bits32(at) % static_cast<uint64_t>(input.ids));
    else
      x.as<float>()[i] = 2 * draws.uniform(at) - 1;
  }
  if (from_bytes)
    SampleValues(data.affine, data.normalize)
        .write({"bytes", StoredAs::kUint8, input.sample, samples, bytes.data()}, 0, samples, x.as<float>());
  return x;
}

// Files of networks of integers take and give codes; those of ONNX the values of codes, and with --float-io any values.
struct IntegerFile {
  inference::Graph graph;
  OutputRounding rule = OutputRounding::kDouble;
  bool values = false, between = false, softmax = false;
  inference::CodeScale in() const { return inference::code_scale(graph[1]); }
  inference::CodeScale logits() const { return inference::code_scale(graph[graph[graph.output()].inputs[0]]); }
  inference::CodeScale out() const { return softmax ? inference::CodeScale{kSoftmaxScale, kSoftmaxZero} : logits(); }
  // Rows of outputs of the model become what the file gives.
  void finish(std::vector<float>& y, int64_t width) const;
};

std::optional<IntegerFile> integer_file(const ExportTarget& target, Learner& learner, const ExportSpec& spec) {
  const std::optional<OutputRounding> rule = inference::integer_rule(learner.model());
  const bool values = target.name == "onnx" || spec.float_io;
  if (!rule || (!values && target.name != "c" && target.name != "tflite")) return std::nullopt;
  return IntegerFile{inference::deployed(learner.model(), *learner.input()), *rule, values, spec.float_io,
                     spec.softmax};
}

void IntegerFile::finish(std::vector<float>& y, int64_t width) const {
  if (!softmax) return;
  const FixedSoftmax form = fixed_softmax(static_cast<double>(logits().scale));
  std::vector<int8_t> codes;
  codes.reserve(y.size());
  for (const float each : y) codes.push_back(static_cast<int8_t>(std::lround(each / logits().scale) + logits().zero));
  for (int64_t row = 0; row < std::ssize(codes); row += width)
    softmax_codes(form, codes.data() + row, width, codes.data() + row);
  for (size_t i = 0; i < y.size(); ++i) y[i] = out().scale * static_cast<float>(codes[i] - out().zero);
}

// Values of random codes, which `bytes` gets if the file takes codes.
Tensor drawn_codes(const IntegerFile& file, int64_t samples, std::vector<uint8_t>& bytes) {
  std::vector<int64_t> dims{samples};
  for (const int64_t d : file.graph[1].form.sample.dims()) dims.push_back(d);
  Tensor x = Tensor::empty(Shape(dims), dtypes::fp32);
  const RandomStream draws{1, Purpose::kInit, 0, 0};
  const inference::CodeScale in = file.in();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint32_t drawn = draws.bits32(static_cast<uint64_t>(i));
    // Between the values of codes: eighths of a step, some of them beyond the range.
    const float code = file.between ? static_cast<float>(drawn % 2304U) / 8.0f - 144.0f
                                    : static_cast<float>(static_cast<int8_t>(drawn & 255U));
    x.as<float>()[i] = in.scale * (code - static_cast<float>(in.zero));
  }
  if (file.values) return x;
  const inference::IntegerNetwork network(file.graph);
  for (int64_t begin = 0; begin < samples; begin += kBlock) {
    std::vector<Tensor> values;  // of all layers
    (void)network.run(x.row_slice(begin, std::min(begin + kBlock, samples)), &values);
    const std::vector<float> codes = values[1].without_quant().to_vector();
    for (const float code : codes) bytes.push_back(static_cast<uint8_t>(static_cast<int8_t>(code)));
  }
  return x;
}

// The kernels of LiteRT that round by the rule.
std::string litert_kernels(OutputRounding rule) {
  return concat("kernels = \"", rule == OutputRounding::kFloat ? "AUTO" : "BUILTIN_REF", "\"\n");
}

void run_c(const std::string& path, bool returns, const TemporaryFolder& folder, const std::string& log) {
  const std::filesystem::path file = std::filesystem::absolute(path);
  const std::string name = c_name_of(path);
  std::ofstream(folder.file("main.c")) << "#include \"" << file.stem().string() << ".h\"\n#define NAME(x) " << name
                                       << "##x\n#define PREDICT(x, y) "
                                       << (returns ? "NAME(_predict)(x, y)" : "(NAME(_predict)(x, y), 0)") << '\n'
                                       << kCMain;
  int code = run({compiler(), "-std=c99", "-O2", "-I" + file.parent_path().string(), folder.file("main.c"),
                  file.string(), "-o", folder.file("main")},
                 log);
  if (code == 0) code = run({folder.file("main"), folder.file("x"), folder.file("y")}, log);
  if (code != 0) fail_with(ErrorCode::kData, kCheck, path, " in C ended with ", code, ": ", text_of_file(log));
}

std::vector<float> outputs_of(const std::string& path, const std::string& client, size_t expected) {
  std::vector<float> theirs(expected);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(theirs.size() * sizeof(float)));
  if (in.gcount() != static_cast<std::streamsize>(theirs.size() * sizeof(float)) || in.peek() != EOF)
    fail_with(ErrorCode::kData, kCheck, client, " gave another number of outputs than ", expected);
  return theirs;
}

// The line of the report. step: between the values of two codes of a network of integers; 0: another network. Its codes
// are at most `apart` from each other, or it is an error.
std::string compared(const std::string& client, const std::vector<float>& ours, const std::vector<float>& theirs,
                     int64_t width, int64_t samples, float step, int64_t apart) {
  int64_t same = 0, different = 0;
  double difference = 0, largest = 0;
  const int64_t rows = std::ssize(ours) / width;
  for (int64_t r = 0; r < rows; ++r) {
    const float *const a = ours.data() + r * width, *const b = theirs.data() + r * width;
    same += std::max_element(a, a + width) - a == std::max_element(b, b + width) - b ? 1 : 0;
    for (int64_t j = 0; j < width; ++j) {
      difference = std::max(difference, std::abs(static_cast<double>(a[j]) - static_cast<double>(b[j])));
      largest = std::max(largest, std::abs(static_cast<double>(a[j])));
      different += a[j] == b[j] ? 0 : 1;
    }
  }
  if (step > 0) {
    std::string line =
        concat("check in ", client, ": ", different, " of ", ours.size(), " codes of ", samples, " samples differ");
    if (different == 0) return line;
    const int64_t most = std::llround(difference / static_cast<double>(step));
    line += concat(", by at most ", most, "; ", same, " of ", rows, (rows > samples ? " rows" : " samples"),
                   " have the same largest output");
    if (most > apart) fail_with(ErrorCode::kData, kCheck, line);
    return line;
  }
  std::string line = concat("check in ", client, ": ", same, " of ", rows, (rows > samples ? " rows" : " samples"),
                            " have the same largest output; ", "outputs differ by at most ", short_number(difference),
                            " of ", short_number(largest));
  if (same != rows) fail_with(ErrorCode::kData, kCheck, line);
  return line;
}

bool installed(const Client& client) {
  const TemporaryFolder folder;
  const std::string log = folder.file("log");
  if (client.script == nullptr) return run({compiler(), "--version"}, log) == 0;
  return run({python(), "-c", concat("import ", client.packages)}, log) == 0;
}

// Inputs of the written file, and what the model makes of them.
struct Drawn {
  std::optional<IntegerFile> integers = std::nullopt;
  Tensor x = {};
  std::vector<float> y = {};
  int64_t width = 0;  // of a row of y
};

Drawn draw(const ExportTarget& target, Learner& learner, const OpenedFile& file, const ExportSpec& spec,
           int64_t samples, const TemporaryFolder& folder) {
  Drawn out{integer_file(target, learner, spec)};
  std::vector<uint8_t> bytes;
  out.x = out.integers && !spec.with_normalization
              ? drawn_codes(*out.integers, samples, bytes)
              : drawn_samples(*learner.input(), file.config.data, samples, spec.with_normalization, bytes);
  for (int64_t begin = 0, all = samples, block = out.integers ? kBlock : all; begin < all; begin += block) {
    const Tensor y = learner.predict(out.x.row_slice(begin, std::min(begin + block, all)));
    const std::vector<float> rows = y.to_vector();
    out.y.insert(out.y.end(), rows.begin(), rows.end());
    out.width = y.cols();
  }
  if (out.integers) out.integers->finish(out.y, out.width);
  std::ofstream raw(folder.file("x"), std::ios::binary);
  bytes.empty() ? raw.write(static_cast<const char*>(out.x.data()), out.x.bytes())
                : raw.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return out;
}

std::string check_in(const Client& client, const std::string& path, const Drawn& drawn, const ExportSpec& spec,
                     int64_t samples, const TemporaryFolder& folder) {
  const std::string log = folder.file("log"), name = client.script == nullptr ? compiler() : client.name;
  const std::optional<IntegerFile>& integers = drawn.integers;
  if (client.script == nullptr) {
    run_c(path, !integers || (spec.float_io && !spec.with_normalization), folder, log);
  } else {
    const bool codes = integers && !integers->values;
    std::vector<std::string> command{python(),
                                     "-c",
                                     concat(codes ? litert_kernels(integers->rule) : "", client.script),
                                     path,
                                     folder.file("x"),
                                     folder.file("y")};
    for (const int64_t d : drawn.x.shape().dims()) command.push_back(std::to_string(d));
    const int code = run(command, log);
    if (code != 0) fail_with(ErrorCode::kData, kCheck, name, " ended with ", code, ": ", text_of_file(log));
  }
  std::vector<float> theirs = outputs_of(folder.file("y"), name, drawn.y.size());
  if (integers && !integers->values)
    for (float& each : theirs) each = integers->out().scale * (each - static_cast<float>(integers->out().zero));
  // Form qdq leaves the rounding of sums to the client. With its default kernels LiteRT makes a softmax of floats.
  const bool own_softmax = spec.softmax && client.script == kTfliteClient && integers->rule == OutputRounding::kFloat;
  const int64_t apart = spec.form == "qdq" ? 255 : own_softmax ? 1 : 0;
  return compared(name, drawn.y, theirs, drawn.width, samples, integers ? integers->out().scale : 0, apart);
}

}  // namespace

void require_client(const ExportTarget& target) {
  std::string missing;
  for (const Client& client : clients_of(target)) {
    if (installed(client)) return;
    require(client.script != nullptr, kCheck, "no compiler ", compiler(),
            ". Install one, name it by CC, or leave --check out");
    missing += concat(missing.empty() ? "" : " or ", client.packages);
  }
  fail(kCheck, "no ", missing, " in ", python(),
       ". Install them, name a Python by BITGRAD_PYTHON, or leave --check out");
}

std::string check_in_client(const ExportTarget& target, const std::string& path, Learner& learner,
                            const OpenedFile& file, const ExportSpec& spec, int64_t samples) {
  const TemporaryFolder folder;
  const Drawn drawn = draw(target, learner, file, spec, samples, folder);
  const bool codes = drawn.integers && !drawn.integers->values;
  std::string lines, others, packages;
  for (const Client& client : clients_of(target)) {
    const bool same_rule = !codes || client.rounds_by(drawn.integers->rule);
    if (!installed(client)) {
      if (same_rule) packages += concat(packages.empty() ? "" : " or ", client.packages);
      continue;
    }
    if (same_rule)
      lines += check_in(client, path, drawn, spec, samples, folder) + '\n';
    else
      others += concat("no check in ", client.name, ": it rounds by rule ", client.rules, ", the model by ",
                       enum_name(drawn.integers->rule), '\n');
  }
  require(!lines.empty(), kCheck, others,
          packages.empty() ? "Leave --check out"
                           : concat("Install ", packages, " in ", python(), ", or leave --check out"));
  lines += others;
  lines.pop_back();
  return lines;
}

}  // namespace bitgrad::cli
