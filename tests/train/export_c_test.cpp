// Exported C is C99 without a warning, and gives our outputs: bit for bit where all sums are of integers.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kSamples = 40;

struct Written {
  std::string net, name;
  bool exact = false;
  int64_t outputs = 0;
  Tensor x = {}, y = {};
};

// turned: every other factor of a norm gets a minus, so that codes fall where sums rise.
Written written(const ExportNet& net, const TempDir& temp, size_t number, bool turned = false) {
  const auto trainer = trained(net);
  Learner& learner = trainer->learner();
  if (turned) {
    for (Parameter* each : learner.model().parameters()) {
      if (!each->path().ends_with("gamma")) continue;
      Tensor gamma = each->value();
      for (int64_t i = 0; i < gamma.numel(); i += 2) gamma.as<float>()[i] *= -1.0f;
    }
  }
  set_bits_mode(BitsMode::kStrict);
  Written out{.net = net.name, .name = "net" + std::to_string(number)};
  const std::optional<ModelRecord> record = model_record(learner);
  const ExportTarget& target = choose_export_target(temp.file(out.name + ".c"), "");
  const ExportReport report = target.write({&learner.model(), &record->model}, temp.file(out.name + ".c"), {});
  out.exact = std::all_of(report.layers.begin(), report.layers.end(),
                          [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kExact; });
  std::vector<int64_t> dims{kSamples};
  for (const int64_t d : learner.input()->sample.dims()) dims.push_back(d);
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = kSamples;
  const auto data = make_dataset(spec);
  out.x = Tensor::empty(Shape(dims), dtypes::fp32);
  int32_t label = 0;
  for (int64_t i = 0; i < kSamples; ++i) data->sample(i, out.x.as<float>() + i * 784, &label);
  for (int64_t i = 0; i < out.x.numel(); ++i) out.x.as<float>()[i] = out.x.as<float>()[i] * 2 - 1;
  out.y = learner.predict(out.x).clone(MemoryKind::kBuffer);
  out.outputs = out.y.numel() / kSamples;
  return out;
}

void check_outputs(void* library, const Written& w) {
  INFO(w.net);
  using Predict = int (*)(const float*, float*);
  const auto predict = reinterpret_cast<Predict>(::dlsym(library, (w.name + "_predict").c_str()));
  REQUIRE(predict != nullptr);
  std::vector<float> out(static_cast<size_t>(w.outputs)), x(784);
  double largest = 0, difference = 0;
  int64_t same = 0, bits = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const float* const ours = w.y.as<float>() + i * w.outputs;
    REQUIRE(predict(w.x.as<float>() + i * 784, out.data()) == 0);
    bits += std::memcmp(out.data(), ours, out.size() * sizeof(float)) == 0 ? 1 : 0;
    for (size_t j = 0; j < out.size(); ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(ours[j])));
      difference = std::max(difference, std::abs(static_cast<double>(out[j]) - static_cast<double>(ours[j])));
    }
    same += std::max_element(out.begin(), out.end()) - out.begin() == std::max_element(ours, ours + w.outputs) - ours;
  }
  if (w.exact) CHECK(bits == kSamples);
  CHECK(difference <= 1e-5 * (1 + largest));
  CHECK(same == kSamples);
  x[3] = std::nanf("");
  CHECK(predict(x.data(), out.data()) == 1);
}

}  // namespace

TEST_CASE("Exported C compiles without a warning and gives our outputs", "[bits]") {
  const KeepModes keep;
  const TempDir temp;
  std::vector<Written> all;
  std::vector<std::string> refused;
  for (const ExportNet& net : export_nets()) {
    const std::string error = error_of([&] { all.push_back(written(net, temp, all.size())); });
    if (!error.empty()) refused.push_back(net.name + ": " + error);
  }
  REQUIRE(refused.size() == 4);
  CHECK(
      contains(refused[0],
               "scales of tokens: [c] this format does not hold these layers:\n  layers.0 (quantize): scheme absmax"));
  CHECK(contains(refused[1], "norms of rows, gates: [c]"));
  CHECK(contains(refused[1], "(layer_norm): C without a library has no square root. Use batch_norm"));
  CHECK(contains(refused[2], "scales of a batch: [c]"));
  CHECK(contains(refused[3], "branches, prelu, pools: [c]"));
  CHECK(contains(refused[3], "(tanh): C without a library has no such function"));
  int64_t exact = 0;
  for (const Written& w : all) exact += w.exact ? 1 : 0;
  CHECK(exact >= 7);
  for (const std::string compiler : {"gcc", "clang"}) {
    if (run_program({compiler, "--version"}).code != 0) {
      WARN("skipped: no " + compiler);
      continue;
    }
    INFO(compiler);
    const std::string library = temp.file("nets_" + compiler + ".so");
    std::vector<std::string> command{compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic",
                                     "-O2",    "-shared",  "-fPIC", "-o",      library};
    for (const Written& w : all) command.push_back(temp.file(w.name + ".c"));
    const ProcessResult compiled = run_program(command);
    INFO(compiled.err.substr(0, 3000));
    REQUIRE(compiled.code == 0);
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
    REQUIRE(handle != nullptr);
    for (const Written& w : all) check_outputs(handle, w);
    ::dlclose(handle);
  }
}

// [cpu]: the C file and the factors of norms are written from host memory.
TEST_CASE("Products of one bit in C give our outputs for all widths, paddings and falling codes", "[cpu]") {
  const KeepModes keep;
  const TempDir temp;
  const std::string q = "{quantize: {}}, ", next = "{batch_norm: {}}, " + q,
                    quant = kBinaryWeights + ", activations: {dtype: bint1, scheme: binary}";
  const std::vector<ExportNet> nets{
      {"words of 40, 110, 33 and 16 channels",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, {conv2d: {out: 40, kernel: 3, "
       "padding: 1, bias: false}}, " +
           next + "{conv2d: {out: 110, kernel: [3, 2], stride: 2, padding: 1, bias: false}}, " + next +
           "{conv2d: {out: 33, kernel: 3, dilation: 2, padding: 2, pad_value: -1, bias: false}}, " + next +
           "{max_pool: {size: 3, stride: 2, padding: 1}}, {conv2d: {out: 16, kernel: 3, padding: 1, pad_value: 1, "
           "bias: "
           "false}}, " +
           next + "{conv2d: {out: 64, kernel: 3, padding: 1, bias: false}}, " + next +
           "{flatten: {}}, {linear: {out: 24, bias: false}}, " + next +
           "{linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       quant},
      {"codes with a zero point",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: affine, observer: {name: min_max}}}, {conv2d: {out: 35, "
       "kernel: [5, 3], stride: 2, padding: 2, bias: false}}, " +
           next + "{flatten: {}}, {linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       quant},
      {"codes without a sign",
       "[{unsqueeze: {}}, {quantize: {dtype: uint4, scheme: lsq}}, {conv2d: {out: 9, kernel: 6, dilation: 2, bias: "
       "false}}, " +
           next + "{max_pool: {size: 2}}, {flatten: {}}, {linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       quant},
      {"signs that a pool and a sum of values read",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, {conv2d: {out: 40, kernel: 3, "
       "stride: 2, bias: false}}, " +
           next + "{residual: {body: [{max_pool: {size: 3, stride: 1, padding: 1}}, {conv2d: {out: 40, kernel: 3, " +
           "padding: 1, bias: false}}, {batch_norm: {}}], shortcut: [{dequantize: {}}]}}, " + q +
           "{flatten: {}}, {linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       quant},
      {"rows of 36 and 144 signs, which end in half a word",
       "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, {conv2d: {out: 4, kernel: 3, "
       "bias: false}}, " +
           next + "{conv2d: {out: 16, kernel: 3, padding: 1, bias: false}}, " + next +
           "{conv2d: {out: 8, kernel: 3, bias: false}}, " + next +
           "{max_pool: {size: 4}}, {flatten: {}}, {linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
       quant},
  };
  for (const bool turned : {false, true}) {
    std::vector<std::string> command{"cc",
                                     "-std=c99",
                                     "-Wall",
                                     "-Wextra",
                                     "-Werror",
                                     "-pedantic",
                                     "-O2",
                                     "-fsanitize=undefined",
                                     "-fno-sanitize-recover=all",
                                     "-shared",
                                     "-fPIC",
                                     "-o",
                                     temp.file(turned ? "turned.so" : "signs.so")};
    std::vector<Written> all;
    for (const ExportNet& net : nets) {
      all.push_back(written(net, temp, all.size(), turned));
      INFO(net.name);
      CHECK(all.back().exact);
      const std::string source = slurp(temp.file(all.back().name + ".c"));
      CHECK(contains(source, "static int32_t gather_signs"));
      if (all.size() == nets.size())
        for (const std::string function : {"differ_2_half(", "differ_5_half("}) CHECK(contains(source, function));
      if (all.size() <= 3)
        CHECK(contains(source, concat("static void ", all.size() == 3 ? "uint8" : "int8", "_to_signs")));
      command.push_back(temp.file(all.back().name + ".c"));
    }
    const ProcessResult compiled = run_program(command);
    INFO(compiled.err.substr(0, 3000));
    REQUIRE(compiled.code == 0);
    void* const handle = ::dlopen(command[12].c_str(), RTLD_NOW);
    REQUIRE(handle != nullptr);
    for (const Written& w : all) check_outputs(handle, w);
    ::dlclose(handle);
  }
}

TEST_CASE("Names from files stay in their comments, and a header that no #include can name is refused") {
  const TempDir temp;
  const auto trainer = trained({"named", "[{linear: {out: 10}}]", ""});
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  ExportSource source{&trainer->learner().model(), &record->model};
  source.class_names = {"*/ int x; /*",
                        "?\?/",
                        "\\",
                        "a\nint y;",
                        "\xe2\x80\xae",
                        "</script>",
                        "*",
                        "/",
                        "%s",
                        "\"",
                        std::string(3000, '?') + "/"};
  // Each of these at the end of a line, too.
  for (int i = 0; i < 100; ++i) source.class_names.push_back(std::string(static_cast<size_t>(i), 'x') + "?\?/");
  for (const std::string name : {"int.c", "a b.c", "\xc3\xa4.c", "a';b.c"}) {
    INFO(name);
    const std::string path = temp.file(name);
    choose_export_target(path, "").write(source, path, {});
    const std::string header = slurp(path.substr(0, path.size() - 1) + "h");
    CHECK_FALSE(contains(header, "\nint y"));
    CHECK(header.find("*/") == header.find("*/\n#ifndef"));
    const ProcessResult compiled = run_program({"cc", name == "int.c" ? "-std=gnu11" : "-std=c99", "-Wall", "-Wextra",
                                                "-Werror", "-pedantic", "-c", path, "-o", temp.file("a.o")});
    INFO(compiled.err);
    CHECK(compiled.code == 0);
  }
  for (const char* name : {"a\"b.c", "a\\b.c", "a\nb.c", "\xff.c", "float.c", "stdint.c", "1.c", ".c"}) {
    INFO(name);
    const std::string path = temp.file(name);
    CHECK(contains(error_of([&] { choose_export_target(path, "").write(source, path, {}); }), "such as model.c"));
  }
}

TEST_CASE("A quantizer behind a max pool needs the memory of codes, and the report shows how much") {
  const TempDir temp;
  const auto trainer =
      trained({"pooled",
               "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, {conv2d: "
               "{out: 8, kernel: 3}}, {batch_norm: {}}, {relu: {}}, {max_pool: {size: 2}}, {quantize: "
               "{}}, {flatten: {}}, {linear: {out: 10}}]",
               "weights: {dtype: int4, scheme: lsq}, activations: {dtype: uint4, scheme: lsq}"});
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  ExportSource source{&trainer->learner().model(), &record->model};
  source.affine = {2.0f, -1.0f};
  source.class_names = {"a*/b", "c"};
  const std::string path = temp.file("pooled.c");
  const ExportReport report = choose_export_target(path, "").write(source, path, {});
  CHECK(report.ram_bytes < 26 * 26 * 8 * 2);  // codes of the convolution; its floats would take 4 bytes each
  CHECK(report.ram_bytes > 26 * 26 * 8);
  CHECK(report.flash_bytes > 10 * 13 * 13 * 8 / 2);
  REQUIRE(report.facts.size() == 3);
  CHECK(report.facts[0] ==
        std::pair<std::string, std::string>{
            "input",
            "[N,28,28]: samples, rows, columns; 2 * x - 1, x = byte / 255 for bytes (pictures), else "
            "the number itself. The file does not do this (--with-normalization does, from bytes)"});
  CHECK(report.facts[1].second == "[\"a*/b\",\"c\"]");
  CHECK(contains(report.facts[2].second, concat("RAM: ", report.ram_bytes, " bytes")));
  const std::string header = slurp(temp.file("pooled.h"));
  CHECK(contains(header, "2 * x - 1"));
  CHECK(header.find("*/") > header.find("a*|b"));
  const ProcessResult compiled =
      run_program({"cc", "-std=c99", "-Wall", "-Werror", "-c", path, "-o", temp.file("a.o")});
  INFO(compiled.err);
  CHECK(compiled.code == 0);
}
