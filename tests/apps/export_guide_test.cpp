// docs/to_onnx_runtime.md, to_microcontroller.md, to_finn.md: their commands and programs run as they stand there,
// after a few steps of training.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "apps/digits_net.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// The first block of a language on a page, behind a heading if it is given; of sh, training takes a few steps.
std::string block(const std::string& page, const std::string& language, const std::string& heading = "") {
  const std::string text = slurp(source_path("docs/") + page);
  const size_t begin = text.find(heading);
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(text.substr(begin));
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      if (inside) return out;
      inside = line == "```" + language;
    } else if (inside) {
      if (language == "sh") line = line.substr(0, line.find("  #"));
      if (contains(line, "digits_linear")) line += " 'schedule.warmup=2 steps'";
      if (line.starts_with("bitgrad train")) line += " 'train.stop=20 steps' data.train.size=400 data.test.size=50";
      out += line + '\n';
    }
  }
  FAIL("docs/" << page << " has no block of " << language);
  return {};
}

class Guide {
 public:
  Guide() { std::filesystem::create_directory_symlink(source_path("configs"), temp.file("configs")); }
  ProcessResult shell(const std::string& script) const {
    return run_program(
        {"/bin/bash", "-c", "set -e; cd '" + temp.path() + "'; PATH='" + build_path("bin") + "':$PATH\n" + script});
  }
  void page(const std::string& name) const {
    const ProcessResult result = shell(block(name, "sh"));
    INFO(name << '\n' << result.out << '\n' << result.err);
    REQUIRE(result.code == 0);
  }
  static std::string program() {
    const char* const named = std::getenv("BITGRAD_PYTHON");
    return named != nullptr ? named : "python3";
  }
  static bool has(const std::string& packages) {
    const bool there = run_program({program(), "-c", "import " + packages}).code == 0;
    if (!there) WARN("skipped: no " + packages + " in " + program() + ". Set BITGRAD_PYTHON");
    return there;
  }
  // Skipped where the packages are not there.
  void python(const std::string& name, const std::string& packages) const {
    if (!has(packages)) return;
    std::ofstream(temp.file("a.py")) << block(name, "python");
    const ProcessResult result = shell("'" + program() + "' a.py");
    INFO(name << '\n' << result.out << '\n' << result.err);
    CHECK(result.code == 0);
    CHECK(contains(result.out, "["));
  }
  TempDir temp;
};

}  // namespace

TEST_CASE("The commands of the guide to networks of integers run as printed") {
  const Guide guide;
  const std::string page = "to_microcontroller.md", heading = "## Networks of integers";
  const ProcessResult made = guide.shell(block(page, "sh", heading));
  INFO(made.out << '\n' << made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.out, ": 0 of 10000 codes of 1000 samples differ"));
  std::ofstream(guide.temp.file("main.c"))
      << block(page, "c", heading) << "int main(void) { return classify() < 0; }\n";
  const ProcessResult c = guide.shell("cc -std=c99 -Wall -Wextra -Werror main.c net.o -o main && ./main");
  INFO(c.err);
  CHECK(c.code == 0);
  const std::string model = guide.temp.file("digits_int8");
  const ProcessResult qonnx = cli({"export", model, "-o", guide.temp.file("m.onnx"), "--format", "qonnx"});
  CHECK(contains(qonnx.err, "format qonnx does not carry these options of quantization:\n"));
  CHECK(contains(qonnx.err, ": compute: integer"));
  const ProcessResult onnx = cli({"export", model, "-o", guide.temp.file("m.onnx")});
  INFO(onnx.err);
  CHECK(onnx.code == 0);
  CHECK(contains(onnx.out, "rounding: double: in ONNX Runtime the codes are those of bitgrad"));
  for (const std::vector<std::string>& doors :
       {std::vector<std::string>{"--float-io"}, {"--with-normalization"}, {"--float-io", "--with-normalization"}}) {
    std::vector<std::string> words{"export", model, "-o", guide.temp.file("m.c"), "--force", "--check"};
    words.insert(words.end(), doors.begin(), doors.end());
    const ProcessResult checked = cli(words);
    INFO(doors[0] << ": " << checked.err);
    CHECK(contains(checked.out, ": 0 of 1000 codes of 100 samples differ"));
  }
  CHECK(contains(cli({"export", model, "-o", guide.temp.file("m.tflite"), "--float-io"}).err,
                 "--float-io: format tflite has no use for it. It is an option of c: leave it out"));
  CHECK(contains(cli({"export", model, "-o", guide.temp.file("m.tflite"), "--stream"}).err,
                 "--stream: format tflite has no use for it. It is an option of c: leave it out"));
  const ProcessResult rows = cli({"export", model, "-o", guide.temp.file("m.c"), "--force", "--stream"});
  CHECK(contains(rows.out, "rows: nothing: "));  // it has no convolution
  const ProcessResult written = cli({"export", model, "-o", guide.temp.file("m.tflite")});
  INFO(written.err);
  if (contains(written.err, "this build has no FlatBuffers")) {
    WARN("skipped: no FlatBuffers");
    return;
  }
  CHECK(written.code == 0);
  CHECK(contains(written.out, "rounding: double: equal codes in TensorFlow Lite Micro"));
}

TEST_CASE("The commands of the guide to ONNX files of networks of integers run as printed") {
  const Guide guide;
  if (!guide.has("numpy, onnxruntime")) return;
  const ProcessResult made = guide.shell(block("to_onnx_runtime.md", "sh", "## Networks of integers"));
  INFO(made.out << '\n' << made.err);
  CHECK(made.code == 0);
  const std::string equal = "check in ONNX Runtime: 0 of 10000 codes of 1000 samples differ";
  const size_t first = made.out.find(equal);
  REQUIRE(first != std::string::npos);
  CHECK(made.out.find(equal, first + 1) != std::string::npos);
}

TEST_CASE("The commands of keyword spotting run as printed, with fewer samples") {
  const Guide guide;
  if (!guide.has("numpy")) return;
  const std::string page = "mlperf_tiny.md", heading = "## Keyword spotting: a stand-in";
  std::filesystem::create_directory_symlink(source_path("scripts"), guide.temp.file("scripts"));
  std::ofstream(guide.temp.file("kws.yaml")) << block(page, "yaml", heading);
  std::string commands = block(page, "sh", heading);
  const auto instead = [&](const std::string& from, const std::string& to) {
    const size_t at = commands.find(from);
    INFO(from);
    REQUIRE(at != std::string::npos);
    commands.replace(at, from.size(), to);
  };
  instead("scripts/drawn_words.py train.npz test.npz",
          "'" + Guide::program() + "' scripts/drawn_words.py train.npz test.npz 400 60");
  instead(" 'train.stop=20 steps' data.train.size=400 data.test.size=50",
          " 'train.stop=12 steps' 'schedule.warmup=2 steps' '~quant.phases'");
  instead("--samples 10000", "--samples 20");
  const ProcessResult made = guide.shell(commands);
  INFO(made.out << '\n' << made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.out, ": 0 of 240 codes of 20 samples differ"));
  const ProcessResult again = guide.shell("cp train.npz a.npz; '" + Guide::program() +
                                          "' scripts/drawn_words.py train.npz test.npz 400 60; cmp a.npz train.npz");
  CHECK(again.code == 0);
  CHECK(guide.shell("'" + Guide::program() + "' scripts/drawn_words.py train.npz test.npz none").code == 1);
}

TEST_CASE("The commands from a PyTorch checkpoint to an emulated Cortex-M run as printed") {
  const Guide guide;
  const std::string page = "to_microcontroller.md", heading = "## From a PyTorch checkpoint in five commands";
  std::filesystem::create_directory_symlink(source_path("scripts"), guide.temp.file("scripts"));
  // What the script of the page saved, with PyTorch 2.15.
  std::filesystem::copy_file(source_path("tests/golden/optdigits_mlp.safetensors"), guide.temp.file("net.safetensors"));
  std::ofstream(guide.temp.file("net.yaml")) << block(page, "yaml", heading);
  const std::string folder = data_folder() + "/optdigits/";
  const bool data = std::filesystem::exists(folder + "optdigits.tes.gz");
  for (const std::string name : {"optdigits.tra.gz", "optdigits.tes.gz"}) {
    if (data) {
      std::filesystem::create_symlink(folder + name, guide.temp.file(name));
      continue;
    }
    std::ofstream lines(guide.temp.file(name));  // not compressed, which is read too
    for (int i = 0; i < 600; ++i)
      for (int j = 0; j < 65; ++j)
        lines << (j < 64 ? (i % 10 * 7 + i * j + j * j) % 17 : i % 10) << (j < 64 ? ',' : '\n');
  }
  std::string commands = block(page, "sh", heading);
  CHECK(std::count(commands.begin(), commands.end(), '\n') == 5);
  const size_t last = commands.find("scripts/run_on_cortex.sh");
  REQUIRE(last != std::string::npos);
  bool emulated = true;
  for (const std::string tool : {"arm-none-eabi-gcc", "qemu-system-arm"})
    if (run_program({tool, "--version"}).code != 0) {
      WARN("skipped: no " + tool + ". Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm");
      emulated = false;
    }
  const ProcessResult made = guide.shell(emulated ? commands : commands.substr(0, last));
  INFO(made.out << '\n' << made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.out, ": 0 of 10000 codes of 1000 samples differ"));
  if (data) {
    CHECK(contains(made.out, "accuracy 95.1"));
    CHECK(contains(made.out, "of 1797 test samples"));
  } else {
    WARN("skipped: accuracy, without optdigits in $BITGRAD_DATA");
  }
  if (!emulated) return;
  CHECK(contains(made.out, "cortex-m4 (emulated): outputs of 20 random samples equal those of "));
  CHECK(contains(made.out, "instructions of a sample: "));
  const auto refused = [&](const std::string& words, const std::string& text) {
    const ProcessResult result = guide.shell("scripts/run_on_cortex.sh " + words);
    INFO(result.out << result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, text));
  };
  refused("digits.c cortex-a9", "got core 'cortex-a9', expected cortex-m3, cortex-m4 or cortex-m7");
  refused("digits.h", "expected the .c file that bitgrad export wrote");
  refused("digits.c cortex-m3 0", "got '0' samples, expected 1 to 99999");
  refused("other.c", "no file other.c");
  // Outputs that depend on the compiler are found.
  std::ofstream(guide.temp.file("wide.h")) << "#include <stdint.h>\nenum { wide_inputs = 1, wide_outputs = 1 };\n"
                                              "typedef int8_t wide_input, wide_output;\n"
                                              "void wide_predict(const int8_t *in, int8_t *out);\n";
  std::ofstream(guide.temp.file("wide.c")) << "#include \"wide.h\"\nvoid wide_predict(const int8_t *in, int8_t *out) "
                                              "{ out[0] = (int8_t)(in[0] + (int)sizeof(void *)); }\n";
  const ProcessResult wide = guide.shell("scripts/run_on_cortex.sh wide.c cortex-m3 5");
  CHECK(wide.code == 1);
  CHECK(contains(wide.err, "outputs of 5 random samples on cortex-m3 differ from those of "));
}

TEST_CASE("The commands of the guides to other programs run as printed") {
  const Guide guide;
  guide.page("to_onnx_runtime.md");
  guide.python("to_onnx_runtime.md", "numpy, onnxruntime");
  std::filesystem::remove_all(guide.temp.file("runs"));
  guide.page("to_microcontroller.md");
  std::ofstream(guide.temp.file("main.c"))
      << block("to_microcontroller.md", "c") << "int main(void) { return classify() < 0; }\n";
  const ProcessResult c = guide.shell("cc -std=c99 -Wall -Wextra -Werror main.c digits.o -o main && ./main");
  INFO(c.err);
  CHECK(c.code == 0);
  std::filesystem::remove_all(guide.temp.file("runs"));
  guide.page("to_finn.md");
  guide.python("to_finn.md", "numpy, qonnx");

  const std::string run = guide.temp.file("runs/digits");
  // The compiled file takes bytes and gives what the model gives for them, scaled as in the run.
  const ProcessResult bytes =
      cli({"export", run, "-o", guide.temp.file("bytes.c"), "--with-normalization", "--check", "--json"});
  INFO(bytes.err);
  CHECK(bytes.code == 0);
  CHECK(contains(bytes.out, "bytes (UINT8); the file itself computes 2 * x - 1"));
  CHECK(contains(bytes.out, "\"ram_bytes\":"));
  const auto refused = [&](std::vector<std::string> arguments, const std::string& text) {
    arguments.insert(arguments.begin(), {"export", run, "-o"});
    const ProcessResult result = cli(arguments);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(contains(result.err, text));
  };
  refused({guide.temp.file("m.onnx"), "--format", "c"}, "expected a name that ends in .c");
  refused({guide.temp.file("m.c"), "--format", "hf"}, "expected a folder");
  refused({guide.temp.file("m.onnx"), "--format", "pb"}, "expected one of: gguf (.gguf), hf (a folder), onnx (.onnx)");
  refused({guide.temp.file("m.pb")}, "no format has this ending");
  refused({guide.temp.file("m.tflite")}, "files of this format hold networks of integers alone");
  refused({guide.temp.file("m.c"), "--samples", "5"}, "it says how many samples --check draws");
  refused({guide.temp.file("m.c"), "--check", "--samples", "-1"}, "--samples: got -1");
  refused({guide.temp.file("m.onnx"), "--opset", "20"}, "expected 21 to 28");
  refused({guide.temp.file("m.onnx"), "--form", "int"}, "expected integer or qdq");
  refused({guide.temp.file("m.onnx"), "--check", "--dry-run"}, "Choose one");
  refused({guide.temp.file("m.c"), "--float-io"}, "inputs and outputs of this model are floats");
  refused({guide.temp.file("m.c"), "--stream"}, "--stream: rows of values are kept in C of networks of integers alone");
  refused({guide.temp.file("m.c"), "--softmax"}, "this model computes in floats; it is for networks of integers");
  refused({guide.temp.file("m.onnx"), "--softmax"}, "format onnx has no use for it. It is an option of c tflite");
  refused({guide.temp.file("m.npz"), "--with-normalization"},
          "format npz has no use for it. It is an option of onnx c");
  refused({guide.temp.file("m.gguf"), "--check"}, "has no client that is known here");
  refused({guide.temp.file("digits.c")}, "exists");
  refused({guide.temp.file("1.c")}, "Expected a name that begins with a letter");
}

TEST_CASE("export --check names the package of a program that rounds as the model does") {
  const TempDir temp;
  std::ofstream(temp.file("net.yaml")) << kDigitsNet;
  const std::string run = temp.file("run"), python = temp.file("python");
  REQUIRE(cli({"train", temp.file("net.yaml"), "-q", "train.stop=2 steps",
               "quant.rules=[{layers: \"*\", recipe: int8, output_rounding: float}]", "--out", run})
              .code == 0);
  // A Python that has TensorFlow Lite Micro alone, which rounds by rule double.
  std::ofstream(python) << "#!/bin/sh\ncase \"$2\" in *ai_edge_litert*) exit 1 ;; esac\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const ProcessResult r =
      run_program({kProgram, "export", run, "-o", temp.file("m.tflite"), "--check"}, {{"BITGRAD_PYTHON", python}});
  INFO(r.out << r.err);
  CHECK(r.code == 2);
  CHECK(contains(r.err, "no check in TensorFlow Lite Micro: it rounds by rule double, the model by float"));
  CHECK(contains(r.err, "Install numpy, ai_edge_litert in " + python + ", or leave --check out"));
}
