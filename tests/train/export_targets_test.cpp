// Every scheme to every target: lossless, rounded with a bound, or refused with a reason.
#include <algorithm>
#include <filesystem>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "support/temp_dir.h"
#include "train/small_gpt.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Fate = ExportedTensor::Fate;

// What a report comes to: the worst of its layers and tensors. A rounded one says how far, a refused one why.
std::string worst_of(const ExportReport& report) {
  Fate worst = Fate::kExact;
  const auto take = [&](const auto& row) {
    if (row.fate == Fate::kRounded) CHECK((row.error > 0 && !row.reason.empty()));
    if (row.fate == Fate::kRefused) CHECK(!row.reason.empty());
    worst = std::max(worst, row.fate);
  };
  for (const ExportedLayer& layer : report.layers) take(layer);
  for (const ExportedTensor& tensor : report.tensors) take(tensor);
  return worst == Fate::kRefused ? "refused" : worst == Fate::kRounded ? "rounded" : "exact";
}

}  // namespace

TEST_CASE("Every scheme goes to every target without loss, with a bound, or not at all") {
  const KeepModes keep;
  const TempDir temp;
  for (const ExportNet& net : export_nets()) {
    const auto trainer = trained(net);
    const std::optional<ModelRecord> record = model_record(trainer->learner());
    const ExportSource source{&trainer->learner().model(), &record->model};
    const auto check = [&](const std::string& file, const std::string& format, ExportSpec spec,
                           const std::string& expected) {
      INFO(net.name << " to " << (format.empty() ? file : format) << ' ' << spec.form);
      const std::string path = temp.file(file);
      std::filesystem::remove(path);
      const ExportTarget& target = choose_export_target(path, format);
      spec.dry_run = true;
      CHECK(worst_of(target.write(source, path, spec)) == expected);
      CHECK_FALSE(std::filesystem::exists(path));
      spec.dry_run = false;
      const std::string error = error_of([&] { target.write(source, path, spec); });
      CHECK(contains(error, "this format does not hold these ") == (expected == "refused"));
      CHECK(contains(error, ":\n  layers.") == (expected == "refused"));
      CHECK(std::filesystem::exists(path) == (expected != "refused"));
    };
    check("m.onnx", "", {}, net.becomes.onnx);
    check("m.onnx", "", {.form = "qdq", .opset = 25}, net.becomes.qdq);
    check("m.onnx", "qonnx", {}, net.becomes.qonnx);
    check("m.c", "", {}, net.becomes.c);
    check("m.npz", "", {}, "exact");
    check("m.safetensors", "", {.dequantize = true}, "exact");
    check("m.safetensors", "", {}, net.name.starts_with("uint4") || net.name.starts_with("nf4") ? "refused" : "exact");
    CHECK(contains(error_of([&] { choose_export_target("m.gguf", "").write(source, temp.file("m.gguf"), {}); }),
                   "layers"));
  }
}

TEST_CASE("A language model goes to ONNX, and C and QONNX say which layer they do not have") {
  const auto learner = gpt_learner({kRope}, 0);
  const std::optional<ModelRecord> record = model_record(*learner);
  const auto report = [&](const char* format) {
    const ExportTarget& target = choose_export_target(concat("m.", format[0] == 'c' ? "c" : "onnx"), format);
    return target.write({&learner->model(), &record->model}, concat("m", target.ending), {.dry_run = true});
  };
  const ExportReport onnx = report("onnx");
  CHECK(worst_of(onnx) == "rounded");
  CHECK(contains(concat(onnx.facts.back().second), "[N,40]: samples, positions; ids of tokens, 0 to 32"));
  for (const char* format : {"qonnx", "c"}) {
    std::string reasons;
    for (const ExportedLayer& l : report(format).layers)
      if (l.fate == Fate::kRefused) reasons += concat(l.layer, ": ", l.reason, '\n');
    INFO(reasons);
    CHECK(contains(reasons, "layers.0: "));
    CHECK(contains(reasons, "layers.2.0.0.body.2: "));
    CHECK(contains(reasons, "has no such layer. Use"));
  }
}

TEST_CASE("Values in bf16 are refused by every target of graphs") {
  const KeepModes keep;
  const TempDir temp;
  ExportNet net = export_net("fp32 mlp");
  net.model = "{values: bf16, layers: " + net.model + "}";
  const auto trainer = trained(net);
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  for (const char* name : {"m.onnx", "m.c"}) {
    const std::string error = error_of([&] {
      choose_export_target(temp.file(name), "")
          .write({&trainer->learner().model(), &record->model}, temp.file(name), {});
    });
    INFO(error);
    CHECK(contains(error, "values between layers are bf16. Set model.values: fp32"));
  }
}

TEST_CASE("A target refuses options of quantization that it does not list, by layer, option and value") {
  const KeepModes keep;
  ExportNet net = export_net("int8 mlp");
  net.quant =
      "weights: {dtype: int8, scheme: absmax, granularity: channel, pow2: true}, activations: {dtype: int8, scheme: "
      "absmax, eps: 0.5, observer: {name: min_max}}";
  const auto trainer = trained(net);
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  const ExportSource source{&trainer->learner().model(), &record->model};
  for (const ExportTarget& target : export_targets()) {
    INFO(target.name);
    const auto error = [&](std::string_view carries) {
      ExportTarget changed = target;
      changed.carries = carries;
      return error_of([&] { changed.write(source, concat("m", target.ending), {.dry_run = true}); });
    };
    CHECK_FALSE(contains(error(target.carries), "does not carry"));
    const std::string nothing = error("");
    INFO(nothing);
    CHECK(contains(nothing, concat("format ", target.name, " does not carry these options of quantization:")));
    CHECK(contains(nothing, "layers.1.weight: pow2: true"));
    CHECK(contains(nothing, "layers.0: eps: 0.5"));
    CHECK(contains(error("rounding pow2"), "layers.0: eps: 0.5"));
    CHECK_FALSE(contains(error("rounding pow2"), "pow2:"));
    CHECK(contains(error("eps"), "layers.1.weight: pow2: true"));
  }
}
