// Recipes with inputs on models of ids: of an embedding they take the weights, wherever the recipe stands.
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/ptq.h"
#include "config/specs.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kIds = R"(version: 1
data: {train: {format: tokens, file: a.txt, context: 4}, tokenizer: bytes}
model:
  layers:
    - embedding: {num: 256, dim: 8, flat: false}
    - linear: {out: 8}
    - head: {tie: layers.0}
batch: {global: 4}
optim: {name: adam, lr: 0.01}
train: {stop: 2 steps}
)";

RunConfig ids(const TempDir& temp, std::vector<std::string> keys) {
  write_file_atomically(temp.file("a.txt"), std::string(200, 'a') + "bcd");
  keys.insert(keys.begin(), "data.root=" + temp.path());
  return parse_config(kIds, "ids.yaml", keys);
}

}  // namespace

TEST_CASE("a recipe with inputs applies to the weights of an embedding, in quant.recipe, phases and after training") {
  const KeepModes keep;
  const TempDir temp;
  for (const char* recipe : {"8da4w", "w8a8", "w4a4", "ternary_int8"})
    for (const std::string& key :
         {concat("quant.recipe=", recipe),
          concat("quant.phases=[{from: 0 steps, quantization: off}, {from: 1 steps, recipe: ", recipe, "}]")}) {
      INFO(key);
      const RunConfig config = ids(temp, {key});
      run_all(config, create_run_folder(config, temp.file(concat(recipe, key.size()))));
    }
}

TEST_CASE("ranges of a model of ids are observed where values are") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig config = ids(temp, {"quant.recipe=w8a8"});
  const auto data = open_dataset(config, config.data.train);
  const auto learner = build_evaluator(config, *data);
  const RunConfig observed = with_observer(config, learner->model(), "min_max");
  CHECK(observed.quant.prepare.recipe == "w8a8");
  for (const QuantRuleConfig& rule : observed.quant.prepare.rules) CHECK(rule.layers != "layers.0");
  const RunConfig again = parse_config(to_yaml(observed), "again.yaml");
  for (const LayerChoice& c : choose_layers(learner->model(), config::prepare_spec(again.quant.prepare)))
    CHECK(c.quant->observer.has_value() == (c.layer != "layers.0"));
}

TEST_CASE("a rule that asks an embedding for an input alone stays an error") {
  const TempDir temp;
  CHECK(contains(error_of([&] { ids(temp, {"quant.rules=[{layers: layers.0, recipe: w8a8}]"}); }),
                 "whose input are ids"));
}

TEST_CASE("files of a tied model from phases, first and observers are read back") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig phased = ids(temp, {"quant.phases=[{from: 0 steps, recipe: int8wo}, {from: 1 steps, recipe: w8a8}, "
                                      "{from: 2 steps, first: int4wo}]",
                                      "train.stop=3 steps"});
  const std::string run = create_run_folder(phased, temp.file("phased"));
  run_all(phased, run);
  const auto data = open_dataset(phased, phased.data.train);
  const auto learner = load_evaluator(phased, *data, run + "/last.safetensors");
  const double before = evaluate(*learner, *data, 4).loss;
  const RunConfig config = converted_config(phased, *learner);
  CHECK(config.quant.prepare.recipe == "w8a8");
  learner->convert();
  save_converted(temp.file("model"), *learner, read_checkpoint_header(run + "/last.safetensors"), config);
  CHECK(evaluate(*load_file(open_file(temp.file("model")), data.get()), *data, 4).loss == before);

  const RunConfig w8a8 = ids(temp, {"quant.recipe=w8a8"});
  const auto floats = load_floats(run + "/last.safetensors", w8a8, *data);
  const RunConfig observed = with_observer(w8a8, floats->model(), "min_max");
  const auto samples = first_samples(*data, 20, 4, 1);
  quantize_after_training(*floats, config::prepare_spec(observed.quant.prepare), samples, samples);
  save_converted(temp.file("observed"), *floats, read_checkpoint_header(run + "/last.safetensors"), observed);
  CHECK(read_checkpoint_header(temp.file("observed")).config.find("min_max") != std::string::npos);
}
