// Exported ONNX files hold our codes and scales, and ONNX Runtime (Python of $BITGRAD_PYTHON) computes our outputs.
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/export/export.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "support/paths.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kSamples = 1000;

std::string python() {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  return named != nullptr ? named : "python3";
}
bool has_packages(const std::string& names) {
  const bool there = run_program({python(), "-c", "import " + names}).code == 0;
  if (!there) WARN("skipped: no " + names + " in " + python() + ". Set BITGRAD_PYTHON");
  return there;
}

void write_floats(const std::string& path, const Tensor& t) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(t.data()), t.bytes());
}

Json weights_of(Module& model) {
  Json out = Json::object();
  for (const auto& [layer, slot] : model.quantizables_at(kModelRoot)) {
    const Tensor& w = slot->weight().value();
    if (!w.dtype().is_code()) continue;
    const bool levels = w.dtype().kind() == DTypeKind::kCodebook;
    Json codes = Json::array(), scales = Json::array();
    std::vector<uint8_t> raw(static_cast<size_t>(w.cols()));
    for (int64_t r = 0; r < w.rows(); ++r) {
      unpack_row_raw(w.dtype(), static_cast<const uint8_t*>(w.data()) + r * w.stride(), 0, w.cols(), raw.data());
      for (const uint8_t code : raw) codes.push_back(levels ? code : decode_int(w.dtype().info(), code));
    }
    if (!w.quant() || !w.quant()->scale)
      scales.push_back(1.0f);
    else
      for (const float s : w.quant()->scale->to_vector()) scales.push_back(s);
    const Shape logical = slot->weight().logical_shape();
    Json entry{{"o", w.rows()}, {"k", w.cols()}, {"codes", codes}, {"scales", scales}};
    entry["kernel"] = logical.rank() == 4 ? Json{logical[1], logical[2]} : Json(nullptr);
    out[layer] = entry;
  }
  return out;
}

struct Case {
  std::string net;
  ExportSpec spec = {};
  ExportReport report = {};
};

// Exports the case below `temp` and gives its line of the manifest.
Json exported(Case& c, Trainer& trainer, const TempDir& temp, size_t number, const std::string& format = "",
              int64_t samples = kSamples) {
  Learner& learner = trainer.learner();
  const std::optional<ModelRecord> record = model_record(learner);
  const std::string base = temp.file(std::to_string(number));
  c.report =
      choose_export_target(base + ".onnx", format).write({&learner.model(), &record->model}, base + ".onnx", c.spec);
  std::vector<int64_t> dims{samples};
  for (const int64_t d : learner.input()->sample.dims()) dims.push_back(d);
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = samples;
  const auto data = make_dataset(spec);
  const Tensor x = Tensor::empty(Shape(dims), dtypes::fp32);
  int32_t label = 0;
  for (int64_t i = 0; i < samples; ++i) data->sample(i, x.as<float>() + i * 784, &label);
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = x.as<float>()[i] * 2 - 1;
  write_floats(base + ".x", x);
  write_floats(base + ".y", learner.predict(x));
  return {{"file", base + ".onnx"},
          {"inputs", base + ".x"},
          {"shape", dims},
          {"outputs", base + ".y"},
          {"weights", weights_of(learner.model())}};
}

}  // namespace

TEST_CASE("ONNX Runtime computes what we compute, from files with our codes and scales") {
  if (!has_packages("numpy, onnx, onnxruntime")) return;
  const KeepModes keep;
  const TempDir temp;
  std::vector<Case> cases;
  Json manifest = Json::array();
  for (const ExportNet& net : export_nets()) {
    const auto trainer = trained(net);
    std::vector<Case> forms{{net.name}};
    if (net.name.starts_with("w") || net.name.starts_with("int2")) forms.push_back({net.name, {.opset = 25}});
    if (net.name != "int8 mlp, integers" && net.name != "resnet20 w4a4") forms.push_back({net.name, {.form = "qdq"}});
    for (Case& c : forms) {
      cases.push_back(c);
      manifest.push_back(exported(cases.back(), *trainer, temp, cases.size()));
    }
  }
  std::ofstream(temp.file("manifest.json")) << manifest.dump();
  const ProcessResult client =
      run_program({python(), source_path("tests/scripts/onnx_client.py"), temp.file("manifest.json")});
  INFO(client.err);
  REQUIRE(client.code == 0);
  const Json answers = Json::parse(client.out);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& a = answers.at(i);
    INFO(cases[i].net << ", form " << cases[i].report.family << ", opset " << cases[i].spec.opset << ": " << a.dump());
    CHECK(a.at("passed") == "yes");
    CHECK(a.at("codes").empty());
    CHECK(a.at("unused").empty());
    CHECK(a.at("one").get<bool>() == (cases[i].net != "int8 conv, scales of a batch"));
    const bool exact = std::all_of(cases[i].report.layers.begin(), cases[i].report.layers.end(),
                                   [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kExact; });
    if (exact)
      CHECK(a.at("difference").get<double>() == 0);
    else if (cases[i].report.family == "integer")
      CHECK(a.at("difference").get<double>() <= 1e-5 * (1 + a.at("largest").get<double>()));
    if (exact || cases[i].report.family == "integer") CHECK(a.at("agree") == kSamples);
    CHECK(a.at("agree").get<int64_t>() >= kSamples - 5);
  }
}

TEST_CASE("The package qonnx computes what we compute, and reads our bits") {
  if (!has_packages("numpy, qonnx")) return;
  const KeepModes keep;
  const TempDir temp;
  Json manifest = Json::array();
  const std::vector<std::pair<std::string, std::string>> nets{
      {"w1a1 mlp", "BIPOLAR"}, {"w2a2 mlp", "INT2"}, {"lsq w4a4 conv", "INT4"}, {"binary cnv", "BIPOLAR"}};
  for (const auto& [name, bits] : nets) {
    Case c{name};
    const auto trainer = trained(export_net(name));
    manifest.push_back(exported(c, *trainer, temp, manifest.size(), "qonnx", 6));
  }
  std::ofstream(temp.file("manifest.json")) << manifest.dump();
  const ProcessResult client =
      run_program({python(), source_path("tests/scripts/qonnx_client.py"), temp.file("manifest.json")});
  INFO(client.err);
  REQUIRE(client.code == 0);
  const Json answers = Json::parse(client.out);
  for (size_t i = 0; i < nets.size(); ++i) {
    INFO(nets[i].first << ": " << answers.at(i).dump());
    CHECK(answers.at(i).at("difference").get<double>() <= 1e-5 * (1 + answers.at(i).at("largest").get<double>()));
    CHECK(answers.at(i).at("bits").size() >= 2);
    for (const Json& found : answers.at(i).at("bits")) CHECK(found == nets[i].second);
  }
}
