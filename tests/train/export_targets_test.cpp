// Every scheme to every target: lossless, rounded with a bound, or refused with a reason.
#include <algorithm>
#include <filesystem>
#include <map>

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

struct Row {
  std::string onnx, qdq, qonnx, c;
};
// "rounded": sums of floats, in an order of the client's, or a rule at ties. Decoders alone go to gguf and hf.
const std::map<std::string, Row> kMatrix{
    {"fp32 mlp", {"rounded", "rounded", "rounded", "rounded"}},
    {"w1a1 mlp", {"exact", "exact", "rounded", "exact"}},
    {"w2a2 mlp", {"exact", "exact", "rounded", "exact"}},
    {"int8 mlp", {"exact", "rounded", "rounded", "exact"}},
    {"int8 mlp, integers", {"exact", "refused", "refused", "exact"}},
    {"affine uint8 mlp", {"exact", "rounded", "rounded", "exact"}},
    {"int8 mlp, scales of tokens", {"exact", "rounded", "refused", "refused"}},
    {"int4 groups", {"rounded", "rounded", "refused", "rounded"}},
    {"uint4 groups with offsets", {"rounded", "rounded", "refused", "rounded"}},
    {"int2 channel weights", {"rounded", "rounded", "rounded", "rounded"}},
    {"nf4 weights", {"rounded", "rounded", "refused", "rounded"}},
    {"lsq w4a4 conv", {"rounded", "rounded", "rounded", "rounded"}},
    {"binary cnv", {"exact", "exact", "rounded", "exact"}},
    {"resnet20 w4a4", {"rounded", "rounded", "rounded", "exact"}},
    {"norms of rows, gates", {"rounded", "rounded", "rounded", "refused"}},
    {"int8 conv, scales of a batch", {"rounded", "rounded", "refused", "refused"}},
    {"w8a8_static conv", {"exact", "rounded", "rounded", "exact"}},
    {"branches, prelu, pools", {"rounded", "rounded", "rounded", "refused"}},
};

}  // namespace

TEST_CASE("Every scheme goes to every target without loss, with a bound, or not at all") {
  const KeepModes keep;
  const TempDir temp;
  REQUIRE(kMatrix.size() == export_nets().size());
  for (const ExportNet& net : export_nets()) {
    const auto trainer = trained(net);
    const std::optional<ModelRecord> record = model_record(trainer->learner());
    const ExportSource source{&trainer->learner().model(), &record->model};
    const Row& row = kMatrix.at(net.name);
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
    check("m.onnx", "", {}, row.onnx);
    check("m.onnx", "", {.form = "qdq", .opset = 25}, row.qdq);
    check("m.onnx", "qonnx", {}, row.qonnx);
    check("m.c", "", {}, row.c);
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
