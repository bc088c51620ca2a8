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
#include "train/small_gpt.h"
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

Tensor digits(const Form& input, int64_t samples) {
  std::vector<int64_t> dims{samples};
  for (const int64_t d : input.sample.dims()) dims.push_back(d);
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = samples;
  const auto data = make_dataset(spec);
  const Tensor x = Tensor::empty(Shape(dims), dtypes::fp32);
  int32_t label = 0;
  for (int64_t i = 0; i < samples; ++i) data->sample(i, x.as<float>() + i * 784, &label);
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = x.as<float>()[i] * 2 - 1;
  return x;
}

// Exports the case below `temp` and gives its line of the manifest. x: samples, in fp32 or int32.
Json exported(Case& c, Learner& learner, const Tensor& x, const TempDir& temp, size_t number,
              const std::string& format = "") {
  const std::optional<ModelRecord> record = model_record(learner);
  const std::string base = temp.file(std::to_string(number));
  c.report =
      choose_export_target(base + ".onnx", format).write({&learner.model(), &record->model}, base + ".onnx", c.spec);
  write_floats(base + ".x", x);
  write_floats(base + ".y", learner.predict(x));
  return {{"file", base + ".onnx"},    {"inputs", base + ".x"},
          {"shape", x.shape().dims()}, {"ids", x.dtype() == dtypes::int32},
          {"outputs", base + ".y"},    {"weights", weights_of(learner.model())}};
}

// What a client in tests/scripts/ says of each line.
Json answers_of(const std::string& client, const Json& manifest, const TempDir& temp) {
  std::ofstream(temp.file("manifest.json")) << manifest.dump();
  const ProcessResult said =
      run_program({python(), source_path("tests/scripts/" + client + ".py"), temp.file("manifest.json")});
  INFO(said.err);
  REQUIRE(said.code == 0);
  return Json::parse(said.out);
}

// A file that the ONNX checker accepts, with our codes and nothing else.
void check_file(const Json& answer) {
  CHECK(answer.at("passed") == "yes");
  CHECK(answer.at("codes").empty());
  CHECK(answer.at("unused").empty());
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
      Learner& learner = trainer->learner();
      manifest.push_back(exported(cases.back(), learner, digits(*learner.input(), kSamples), temp, cases.size()));
    }
  }
  const Json answers = answers_of("onnx_client", manifest, temp);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& a = answers.at(i);
    INFO(cases[i].net << ", form " << cases[i].report.variant << ", opset " << cases[i].spec.opset << ": " << a.dump());
    check_file(a);
    CHECK(a.at("one").get<bool>() == (cases[i].net != "int8 conv, scales of a batch"));
    const bool exact = std::all_of(cases[i].report.layers.begin(), cases[i].report.layers.end(),
                                   [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kExact; });
    if (exact)
      CHECK(a.at("difference").get<double>() == 0);
    else if (cases[i].report.variant == "integer")
      CHECK(a.at("difference").get<double>() <= 1e-5 * (1 + a.at("largest").get<double>()));
    if (exact || cases[i].report.variant == "integer") CHECK(a.at("agree") == kSamples);
    CHECK(a.at("agree").get<int64_t>() >= kSamples - 5);
  }
}

TEST_CASE("ONNX Runtime computes what a language model computes, for any number of positions") {
  if (!has_packages("numpy, onnx, onnxruntime")) return;
  const KeepModes keep;
  const TempDir temp;
  constexpr int64_t kTexts = 20;
  const std::string interleaved = kAttentionKeys + "interleaved=true",
                    tokens = ", activations: {dtype: int8, scheme: absmax, granularity: token}",
                    int8 = "weights: {dtype: int8, scheme: absmax, granularity: channel}";
  const std::vector<std::pair<std::string, Strings>> nets{
      {"gpt", {}},
      {"rope", {kRope}},
      {"side by side",
       {"model={layers: [{embedding: {num: 33, dim: 5}}, {linear: {out: 16}}, {relu: {}}, {linear: {out: 33}}]}"}},
      {"rope of neighbours", {kRope, interleaved}},
      {"capped scores", {kAttentionKeys + "softcap=0.5", "model.layers.2.repeat.layers.0.residual.scale=0.5"}},
      {"q and k by heads", {kRope, kHeadNorm}},
      {"window",
       {kRope, kAttentionKeys + "window=5", kAttentionKeys + "scale=0.4", "model.layers.0.embedding.scale=3"}},
      {"q and k by rows", {kRope, kRowNorm}},
      {"int4 groups", {in_blocks("weights: {dtype: int4, scheme: symmetric, granularity: group(16)}")}},
      {"int4 groups, int8 rows",
       {in_blocks("weights: {dtype: int4, scheme: symmetric, granularity: group(16)}" + tokens)}},
      {"ternary, int8 rows", {kRope, in_blocks("weights: {dtype: ternary, scheme: ternary}" + tokens)}},
      {"int8, int8 rows", {in_blocks(int8 + tokens)}},
      {"int8 table", {"quant.rules=[{layers: layers.0, " + int8 + "}]"}},
      {"nf4 table",
       {"quant.rules=[{layers: layers.0, weights: {dtype: nf4, scheme: codebook, granularity: group(16)}}]"}},
  };
  std::vector<Case> cases;
  Json manifest = Json::array();
  for (const auto& [name, keys] : nets) {
    const auto learner = gpt_learner(keys, name == "side by side" ? 0 : 2);
    learner->convert();
    for (const ExportSpec& spec : {ExportSpec{}, ExportSpec{.form = "qdq"}, ExportSpec{.opset = 25}}) {
      cases.push_back({name, spec});
      const Tensor x = ids_tensor(some_ids(kTexts * kGptContext), kTexts);
      manifest.push_back(exported(cases.back(), *learner, x, temp, cases.size()));
    }
  }
  const Json answers = answers_of("onnx_client", manifest, temp);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& a = answers.at(i);
    INFO(cases[i].net << ", form " << cases[i].report.variant << ", opset " << cases[i].spec.opset << ": " << a.dump());
    check_file(a);
    CHECK(a.at("one") == true);
    CHECK(a.at("lengths") == (cases[i].net == "side by side" ? "fixed" : "up to the context"));
    const auto& tensors = cases[i].report.tensors;  // the head's table is the embedding's
    if (cases[i].net == "gpt")
      CHECK(
          std::none_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.parameter == "layers.4.weight"; }));
    // A row near the middle of two codes may take the other one.
    const bool codes = cases[i].net.find("rows") != std::string::npos;
    CHECK(a.at("difference").get<double>() <= (codes ? 0.005 : 1e-5) * (1 + a.at("largest").get<double>()));
    CHECK(a.at("agree").get<int64_t>() >= a.at("rows").get<int64_t>() - (codes ? 2 : 0));
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
    Learner& learner = trainer->learner();
    manifest.push_back(exported(c, learner, digits(*learner.input(), 6), temp, manifest.size(), "qonnx"));
  }
  const Json answers = answers_of("qonnx_client", manifest, temp);
  for (size_t i = 0; i < nets.size(); ++i) {
    INFO(nets[i].first << ": " << answers.at(i).dump());
    CHECK(answers.at(i).at("difference").get<double>() <= 1e-5 * (1 + answers.at(i).at("largest").get<double>()));
    CHECK(answers.at(i).at("bits").size() >= 2);
    for (const Json& found : answers.at(i).at("bits")) CHECK(found == nets[i].second);
  }
}
