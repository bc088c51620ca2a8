// The Python package: its wheel in an environment of its own. $BITGRAD_PYTHON: a Python with numpy (and torch); else
// python3.
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "apps/pictures.h"
#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "bitgrad/infer/predictor.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const NpyBytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// 300 images of 28 x 28, each with a bright block whose place says its class.
void write_samples(const TempDir& temp) {
  std::mt19937 random(7);
  NpyBytes pixels, labels;
  for (uint32_t i = 0; i < 300; ++i) {
    const uint32_t label = random() % 10;
    labels.push_back(static_cast<uint8_t>(label));
    for (uint32_t p = 0; p < 784; ++p)
      pixels.push_back(static_cast<uint8_t>(random() % 100 + (p / 79 == label ? 150 : 0)));
  }
  write(temp.file("x.npy"), npy("|u1", "(300, 28, 28)", pixels));
  write(temp.file("y.npy"), npy("|u1", "(300,)", labels));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// A virtual environment that holds the wheel alone; its Python. Empty: there is no Python with venv and pip.
std::string installed(const TempDir& temp) {
  const ProcessResult built =
      run_program({python(), source_path("apps/python/build_wheel.py"), "--library", build_path("lib/libbitgrad_c.so"),
                   "--version", "0.1.0", "--out", temp.file("wheel")});
  if (built.code == 127) return {};
  INFO(built.err);
  REQUIRE(built.code == 0);
  const std::string wheel = first_line(built.out.substr(0, built.out.find(": ")));
  if (run_program({python(), "-m", "venv", "--without-pip", temp.file("venv")}).code != 0) return {};
  std::string own = temp.file("venv/bin/python3");
  const std::string site =
      first_line(run_program({own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"}).out);
  const ProcessResult pip = run_program({python(), "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                                         "--disable-pip-version-check", "--target", site, wheel});
  INFO(pip.err);
  if (contains(pip.err, "No module named pip")) return {};
  REQUIRE(pip.code == 0);
  return own;
}

// A small language model writes the texts of `bitgrad generate`.
void check_texts(const std::string& own, const TempDir& temp) {
  std::ofstream text(temp.file("a.txt"));
  for (int i = 0; i < 20; ++i) text << "to be or not to be, that is the question: the end\n";
  text.close();
  std::ofstream(temp.file("gpt.yaml")) << R"yaml(version: 1
data: {tokenizer: chars, train: {format: tokens, file: a.txt, context: 16}}
model:
  layers:
    - embedding: {num: 17, dim: 16, flat: false}
    - residual: {body: [{rms_norm: {}}, {linear: {out: 32}}, {attention: {heads: 2, kv_heads: 1, rope: 100}}, {linear: {out: 16}}]}
    - head: {tie: layers.0}
quant: {recipe: w8a8}
batch: {global: 8}
optim: {name: adamw, lr: 0.01}
train: {stop: 20 steps}
)yaml";
  const std::string run = temp.file("gpt");
  const ProcessResult trained = cli({"train", temp.file("gpt.yaml"), "-q", "--data", temp.path(), "--out", run});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const ProcessResult script = run_program({own, source_path("tests/scripts/python_text.py"), run, temp.file("")});
  INFO(script.out << script.err);
  REQUIRE(script.code == 0);
  const Json wrote = Json::parse(first_line(script.out));
  const auto program = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", run, "--json"});
    const ProcessResult r = cli(words);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return Json::parse(r.out).at("samples");
  };
  CHECK(program({"--prompt", "to be", "--tokens", "40", "--temperature", "0"})[0].at("text").text() ==
        wrote.at("greedy").text());
  const Json drawn = program({"--prompt",
                              "to be or not",
                              "--tokens",
                              "30",
                              "--temperature",
                              "0.8",
                              "--top-k",
                              "9",
                              "--top-p",
                              "0.9",
                              "--min-p",
                              "0.01",
                              "--repetition-penalty",
                              "1.1",
                              "--seed",
                              "7",
                              "--samples",
                              "3",
                              "--stop",
                              "end",
                              "--kv",
                              "bf16"});
  for (size_t i = 0; i < 3; ++i) CHECK(drawn.at(i).at("text").text() == wrote.at("texts").at(i).text());
  CHECK(program({"--ids", "3,1,4", "--tokens", "5", "--temperature", "0"})[0].at("ids").dump() ==
        wrote.at("ids").dump());
}

}  // namespace

TEST_CASE(
    "the Python package without NumPy: interrupts are never lost, handles close at any time, dicts configure, texts "
    "and adapters") {
  const TempDir temp;
  const std::string own = installed(temp);
  if (own.empty()) {
    WARN("skipped: no venv and pip in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  const ProcessResult script = run_program({own, source_path("tests/scripts/python_calls.py"), temp.file("")});
  INFO(script.out << script.err);
  CHECK(script.code == 0);
  const ProcessResult capsules = run_program({own, source_path("tests/scripts/python_dlpack.py"), temp.file("")});
  INFO(capsules.out << capsules.err);
  CHECK(capsules.code == 0);
  check_texts(own, temp);
  const ProcessResult licenses = run_program(
      {own, "-c", "import importlib.metadata as m; print(*(f for f in m.files('bitgrad') if '/licenses/' in str(f)))"});
  for (const char* name : {"licenses/LICENSE", "dnnl", "jpeg", "gomp"}) CHECK(contains(licenses.out, name));
}

TEST_CASE("the Python package trains TFC from arrays to the state of the program, predicts and leaks nothing") {
  const TempDir temp;
  const ProcessResult numpy =
      run_program({python(), "-c", "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))"});
  const std::string own = numpy.code == 0 ? installed(temp) : "";
  if (own.empty()) {
    WARN("skipped: no numpy, venv and pip in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  write_samples(temp);
  const std::string config = source_path("configs/mnist_tfc_w1a1.yaml");
  const ProcessResult script = run_program({own, source_path("tests/scripts/python_package.py"), config,
                                            temp.file("x.npy"), temp.file("y.npy"), temp.file("")},
                                           {{"PYTHONPATH", first_line(numpy.out)}});
  INFO(script.out << script.err);
  REQUIRE(script.code == 0);
  const std::string data = "{format: npy, images: '" + temp.file("x.npy") + "', labels: '" + temp.file("y.npy") + "'}";
  const ProcessResult r = cli({"train", config, "-q", "--out", temp.file("own"), "train.stop=1 epochs",
                               "data.train=" + data, "data.test=" + data});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(Json::parse(slurp(temp.file("own/summary.json"))).at("state_hash").text() == first_line(script.out));
}

namespace {

// The blocks of a page that are written in `language`, in order.
std::vector<std::string> blocks_of(const std::string& page, const std::string& language) {
  std::istringstream lines(slurp(source_path("docs/") + page));
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```" + language;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + '\n';
    }
  }
  return blocks;
}

bool imports(const std::string& packages) { return run_program({python(), "-c", "import " + packages}).code == 0; }

}  // namespace

TEST_CASE("the Python code of docs/python.md runs as printed") {
  if (!imports("numpy")) {
    WARN("skipped: no numpy in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  const TempDir temp;
  std::ofstream script(temp.file("guide.py"));
  for (const std::string& block : blocks_of("python.md", "python")) script << block;
  script.close();
  const ProcessResult r = run_program({python(), temp.file("guide.py")},
                                      {{"PYTHONPATH", source_path("apps/python")},
                                       {"PYTHONDONTWRITEBYTECODE", "1"},
                                       {"BITGRAD_LIBRARY", build_path("lib/libbitgrad_c.so")}},
                                      temp.path());
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "Output(shape=(10,), task='classes', probabilities=True"));
}

TEST_CASE("the commands of docs/pytorch.md run as printed and give PyTorch's outputs") {
  if (!imports("torch, numpy, safetensors")) {
    WARN("skipped: no torch, numpy and safetensors in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  const TempDir temp;
  std::ofstream(temp.file("save.py")) << blocks_of("pytorch.md", "python").at(0);
  std::ofstream(temp.file("net.yaml")) << blocks_of("pytorch.md", "yaml").at(0);
  const ProcessResult save = run_program({python(), temp.file("save.py")}, {}, temp.path());
  INFO(save.err);
  REQUIRE(save.code == 0);
  Bytes gray(28 * 28, 40);
  const Bytes picture = png(28, 28, 0, gray);
  write(temp.file("digits.png"), picture);
  std::string script = "set -e; PATH='" + build_path("bin") + "':$PATH\n";
  for (const std::string& block : blocks_of("pytorch.md", "sh")) script += block;
  const ProcessResult r = run_program({"/bin/bash", "-c", script}, {{"BITGRAD_DATA", ""}}, temp.path());
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const auto numbers = [&](const char* name) {
    const std::string bytes = slurp(temp.file(name));
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
  };
  const auto model = bitgrad::open_model(temp.file("float.safetensors"));
  const std::vector<float> x = numbers("x.bin"), expected = numbers("expected.bin");
  const bitgrad::Tensor y = model->predict(bitgrad::Tensor::from(x, {5, 28, 28}));
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<double> p = model->scores({y.as<float>() + i * 10, 10});
    for (size_t c = 0; c < 10; ++c)
      CHECK(std::abs(p[c] - static_cast<double>(expected[static_cast<size_t>(i) * 10 + c])) < 1e-5);
  }
}

TEST_CASE("networks of PyTorch come in, are trained to 4 bits, and go out to ONNX") {
  const TempDir temp;
  const ProcessResult r = run_program(
      {python(), source_path("apps/examples/roundtrip/roundtrip.py"), build_path("bin/bitgrad"), temp.file("files")},
      {{"BITGRAD_DATA", ""}});
  if (r.code == kAbsent || r.code == 127) {
    WARN("skipped: " + r.err + " in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "mlp: outputs within"));
  CHECK(contains(r.out, "cnn: outputs within"));
}
