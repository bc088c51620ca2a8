// Adapters as their users run them: a float run, adapters over its weights in low bits, saved apart, taken up again and
// merged.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "apps/digits_net.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string text_of_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Runs {
  Runs() { std::ofstream(temp.file("net.yaml")) << kDigitsNet; }
  ProcessResult train(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"train", temp.file("net.yaml"), "-q", "--out", temp.file(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli(arguments);
  }
  std::string trained(const std::string& name, const std::vector<std::string>& more = {}) const {
    const ProcessResult r = train(name, more);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return temp.file(name);
  }
  double accuracy(const std::string& target) const {
    const ProcessResult r = cli({"eval", target, "--json"});
    INFO(r.err);
    REQUIRE(r.code == 0);
    return Json::parse(r.out).at("accuracy").get<double>();
  }
  TempDir temp;
};

}  // namespace

TEST_CASE("adapters over frozen int4 codes: codes and scales stay, adapters are saved apart, loaded and merged") {
  const Runs runs;
  const std::string floats = runs.trained("floats");
  const std::vector<std::string> low{"model.init_from=" + floats, "quant.recipe=int4wo_symmetric"};
  std::vector<std::string> with = low;
  with.push_back("adapters={rank: 4, alpha: 8, dropout: 0.1, layers: [layers.0, layers.3]}");
  with.push_back("train.stop=3 epochs");
  const std::string run = runs.trained("run", with);
  const std::string file = run_folder_checkpoint(run);

  // The codes are those of the float run, quantized; nothing but adapters changed (and running statistics).
  std::vector<std::string> still = low;
  still.push_back("train.stop=1 steps");
  still.push_back("optim.lr=1e-30");
  const NamedTensors before = load_tensors(run_folder_checkpoint(runs.trained("still", still))),
                     after = load_tensors(file);
  for (const char* const layer : {"layers.0", "layers.3", "layers.5"}) {
    const std::string weight = std::string(layer) + ".weight";
    INFO(weight);
    CHECK(after.at(weight).elements() == before.at(weight).elements());
    CHECK(after.at(weight).values() == before.at(weight).values());
    CHECK(after.count(weight + ".master") == 0);
  }
  const NamedTensors first = load_tensors(run_folder_checkpoint(floats));
  CHECK(after.at("layers.1.gamma.master").elements() == first.at("layers.1.gamma.master").elements());
  CHECK(after.count("layers.5.adapter.a.master") == 0);
  bool moved = false;
  for (const double b : after.at("layers.0.adapter.b.master").elements()) moved |= b != 0;
  CHECK(moved);
  const double accuracy = runs.accuracy(run);
  CHECK(accuracy > 50);

  // The model's record knows them.
  const auto record = read_model_record(file);
  REQUIRE(record.has_value());
  CHECK(record->slots.at(0).adapter == AdapterSpec{4, 8, 0.1});
  CHECK_FALSE(record->slots.at(2).adapter.has_value());
  const Tensor x = Tensor::full({3, 784}, dtypes::fp32, 0.25);
  const auto direct = load_evaluator(file, find_loss("softmax_cross_entropy"), 3);
  CHECK(to_text(parse_model_record(to_text(*record))) == to_text(*record));

  // Apart, and back.
  const std::string folder = runs.temp.file("apart");
  const ProcessResult apart = cli({"adapters", run, "-o", folder});
  INFO(apart.err);
  REQUIRE(apart.code == 0);
  CHECK(contains(apart.out, "adapters of 2 layers, 3520 parameters"));
  CHECK(load_tensors(folder + "/adapter_model.safetensors").at("base_model.model.layers.0.lora_A.weight").elements() ==
        after.at("layers.0.adapter.a.master").elements());
  CHECK(
      contains(cli({"adapters", run, "-o", folder}).err, "exists. Name another folder, or overwrite it with --force"));
  std::vector<std::string> again = low;
  again.push_back("adapters={rank: 4, alpha: 8, layers: [layers.0, layers.3], init_from: " + folder + "}");
  again.push_back("train.stop=1 steps");
  again.push_back("optim.lr=1e-30");
  const NamedTensors taken = load_tensors(run_folder_checkpoint(runs.trained("again", again)));
  CHECK(taken.at("layers.3.adapter.b.master").elements() == after.at("layers.3.adapter.b.master").elements());
  again[2] = "adapters={rank: 4, alpha: 9, layers: [layers.0, layers.3], init_from: " + folder + "}";
  CHECK(contains(runs.train("other", again).err,
                 "'layers.0' has rank 4 and alpha 8, the model's adapter rank 4 and "
                 "alpha 9"));
  again[2] = "adapters={rank: 5, layers: [layers.0, layers.5], init_from: " + folder + "}";
  const std::string listed = runs.train("more", again).err;
  CHECK(contains(listed, "missing: base_model.model.layers.5.lora_A.weight"));
  CHECK(contains(listed, "shape: base_model.model.layers.0.lora_A.weight is [4,784], the model has [5,784]"));
  CHECK(contains(listed, "unexpected: base_model.model.layers.3.lora_B.weight"));

  // Merged: as floats the same model, as codes another one that is held as before.
  for (const bool to_float : {true, false}) {
    const std::string merged = runs.temp.file(to_float ? "float" : "codes");
    std::vector<std::string> arguments{"merge", run, "-o", merged};
    if (to_float) arguments.push_back("--float");
    const ProcessResult r = cli(arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "adapters of 2 layers merged"));
    CHECK(std::abs(runs.accuracy(merged) - accuracy) <= (to_float ? 0.01 : 5));
    const auto model = load_evaluator(merged, find_loss("softmax_cross_entropy"), 3);
    CHECK(model->model().parameters().size() == 8);
    const std::vector<double> a = direct->predict(x).elements(), b = model->predict(x).elements();
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    CHECK((worst < 1e-4) == to_float);
    CHECK(contains(cli({"merge", merged, "-o", runs.temp.file("x")}).err, "is converted"));
  }
  CHECK(contains(cli({"merge", floats, "-o", runs.temp.file("y")}).err, "the model has no adapters"));
}

TEST_CASE("an adapter run is one run when it is killed and resumed, and follows activations in codes") {
  const Runs runs;
  const std::string floats = runs.trained("floats");
  const std::vector<std::string> more{"model.init_from=" + floats, "quant.recipe=8da4w", "quant.last=int8wo",
                                      "adapters={rank: 3, dropout: 0.2, train: [layers.1]}",
                                      "checkpoint.every=10 steps"};
  const std::string whole = runs.trained("whole", more);
  std::vector<std::string> half = more;
  half.push_back("train.stop=30 steps");
  const std::string part = runs.trained("part", half);
  const ProcessResult r = cli({"train", "--resume", part, "train.stop=4 epochs", "-q"});
  INFO(r.err);
  CHECK((r.code == 0 || contains(r.err, "train.stop")));
  CHECK(runs.accuracy(whole) > 50);
  const ProcessResult quantization = cli({"inspect", whole});
  CHECK(contains(quantization.out, "+ rank 3"));
  const std::string model = runs.temp.file("model");
  const ProcessResult converted = cli({"convert", whole, "-o", model, "--check"});
  INFO(converted.out << converted.err);
  CHECK(converted.code == 0);
  CHECK(contains(converted.out, "logits equal bit for bit"));
}

TEST_CASE("a folder of adapters holds everything the run changed, and a run that starts from it equals that run") {
  const Runs runs;
  for (const std::string recipe : {"none", "w4a4", "w2a2"}) {
    INFO(recipe);
    const std::vector<std::string> quant{"quant.recipe=" + recipe};
    const std::string base = runs.trained("base-" + recipe, quant), from = "model.init_from=" + base;
    // The head trains as a whole; the norm does, or changes its statistics alone.
    for (const std::string train : {"[layers.1, layers.5]", "[]"}) {
      const std::string name = concat(recipe, train == "[]" ? "-frozen" : "-train");
      const std::string folder = runs.temp.file("folder-" + name),
                        adapters = ", layers: [layers.0, layers.3], train: " + train;
      const std::string run = runs.trained(
          "lora-" + name, {quant[0], from, "adapters={rank: 4, alpha: 8" + adapters + "}", "train.stop=2 epochs"});
      const ProcessResult apart = cli({"adapters", run, "-o", folder});
      INFO(apart.out << apart.err);
      REQUIRE(apart.code == 0);
      CHECK(contains(apart.out, "whole modules: layers.1"));
      const Json config = Json::parse(text_of_file(folder + "/adapter_config.json"));
      CHECK(config.at("modules_to_save").dump().find("layers.1") != std::string::npos);
      CHECK(contains(apart.err, "PEFT's format has no place for") == (recipe != "none"));
      CHECK(std::filesystem::exists(folder + "/bitgrad_state.safetensors") == (recipe != "none"));
      const std::string again = runs.trained(
          "again-" + name, {quant[0], from, "adapters={rank: 4, alpha: 8, init_from: " + folder + adapters + "}",
                            "train.stop=1 steps", "optim.lr=1e-30"});
      const NamedTensors first = load_tensors(run_folder_checkpoint(run)),
                         second = load_tensors(run_folder_checkpoint(again));
      for (const auto& [path, tensor] : first) {
        if (contains(path, ".adam.") || contains(path, "running_")) continue;  // of the one step
        INFO(path);
        CHECK(second.at(path).elements() == tensor.elements());
      }
      CHECK(std::abs(runs.accuracy(again) - runs.accuracy(run)) < 3);
    }
  }
  // What trains here and is not there is told.
  const std::string base = runs.temp.file("base-none"), folder = runs.temp.file("folder-none-frozen");
  const ProcessResult more = runs.train(
      "more",
      {"quant.recipe=none", "model.init_from=" + base, "train.stop=1 steps",
       "adapters={rank: 4, alpha: 8, layers: [layers.0, layers.3], train: [layers.5], init_from: " + folder + "}"});
  INFO(more.err);
  CHECK(contains(more.err, "have no values of layers.5.weight, layers.5.bias, which train here"));
}

TEST_CASE("merge prints loss and accuracy before and after, or warns about missing data") {
  const Runs runs;
  const std::string base = runs.trained("base", {"quant.recipe=int2wo"});
  const std::string run =
      runs.trained("lora", {"quant.recipe=int2wo", "model.init_from=" + base, "adapters={rank: 4}"});
  const ProcessResult merged = cli({"merge", run, "-o", runs.temp.file("merged.safetensors")});
  INFO(merged.out << merged.err);
  REQUIRE(merged.code == 0);
  CHECK(contains(merged.out, concat("before: accuracy ", runs.accuracy(run), " %  loss ")));
  CHECK(contains(merged.out,
                 concat("after:  accuracy ", runs.accuracy(runs.temp.file("merged.safetensors")), " %  loss ")));
  CHECK(contains(merged.out, "--float keeps the sums in fp32"));
  const ProcessResult floats = cli({"merge", run, "-o", runs.temp.file("float.safetensors"), "--float"});
  CHECK(floats.code == 0);
  CHECK(contains(floats.out, concat("after:  accuracy ", runs.accuracy(run), " %  loss ")));
  CHECK_FALSE(contains(floats.out, "--float"));
  const ProcessResult blind = cli({"merge", run, "-o", runs.temp.file("blind.safetensors"),
                                   "data.test={format: npy, images: absent_x.npy, labels: absent_y.npy, classes: 10}"});
  INFO(blind.err);
  CHECK(blind.code == 0);
  CHECK(contains(blind.err, "what merging does to loss and metrics is not measured"));
}

TEST_CASE("adapters without a trained model, and globs that name no linear layer, are errors at their places") {
  const Runs runs;
  CHECK(contains(runs.train("a", {"adapters={rank: 2}"}).err,
                 "command line, argument 1: error: adapters freeze every other weight at its first value: give the "
                 "trained model in model.init_from"));
  CHECK(
      contains(runs.train("b", {"adapters={layers: [layers.9]}"}).err,
               "error: [adapters] layers: 'layers.9' matches no linear layer: these are layers.0, layers.3, layers.5"));
  CHECK(contains(runs.train("c", {"adapters={rank: 0}"}).err, "0 is out of range [1, 65536]"));
  CHECK(contains(runs.train("d", {"adapters={rang: 2}"}).err, "Did you mean 'rank'?"));
}
