// Products of the backward in int8 that a recipe makes possible: from YAML to a run, its converted model and its twins.
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kFloatNet = R"yaml(version: 1
run: {name: small_backward, seed: 3}
data:
  train: {format: digits, size: 50}
  test: {format: digits, size: 30}
model:
  layers:
    - linear: {out: 12, bias: false}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 10}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
train: {stop: 4 steps}
)yaml";

RunConfig net(const std::vector<std::string>& overrides) { return small_config(overrides, kFloatNet); }

}  // namespace

TEST_CASE("int8 products of the backward train on the codes that recipes and rules give") {
  const KeepModes keep;
  const std::string floats = run_all(net({})).state_hash;
  for (const char* mode : {"{gx: int8}", "{gw: int8}", "{gx: int8, gw: int8}"})
    for (const char* spec : {"quant.recipe=w8a8", "quant.rules=[{layers: \"*\", recipe: w8a8}]"}) {
      INFO(mode << ' ' << spec);
      const std::string plain = run_all(net({spec})).state_hash;
      const std::string int8 = run_all(net({spec, std::string("quant.backward=") + mode})).state_hash;
      CHECK(int8 != plain);
      CHECK(plain != floats);
    }
  // A layer that stays in fp32 has no codes.
  CHECK(contains(error_of([&] {
                   Trainer(net({"quant.recipe=w8a8", "quant.last=none", "quant.backward={gx: int8}"}));
                 }),
                 "model.layers.3.linear.backward.gx: linear: gx int8 multiplies codes: got w"));
}

TEST_CASE("a phase that is off lets int8 products of the backward wait, converted or not") {
  const KeepModes keep;
  const std::string mode = "quant.backward={gx: int8, gw: int8}", recipe = "quant.recipe=w8a8";
  const std::string off = "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps}]";
  const std::string late = "quant.phases=[{from: 0 steps, quantization: off}, {from: 3 steps, recipe: w8a8}]";
  for (const std::vector<std::string>& phases : {std::vector<std::string>{recipe, off}, {late}}) {
    std::vector<std::string> keys = phases;
    keys.insert(keys.end(), {mode, "train.stop=2 steps"});
    const RunConfig config = net(keys);
    TempDir temp;
    const std::string folder = create_run_folder(config, temp.file("run"));
    const TrainOutcome outcome = run_all(config, folder);
    const std::string checkpoint = folder + "/last.safetensors", model = temp.file("model");
    const auto data = open_dataset(config, *config.data.test);
    const auto learner = load_evaluator(config, *data, checkpoint);
    const RunConfig written = converted_config(config, *learner);
    REQUIRE_NOTHROW(learner->convert());
    save_converted(model, *learner, read_checkpoint_header(checkpoint), written);
    const RunConfig read = parse_config(read_checkpoint_header(model).config, model);
    const auto converted = load_evaluator(read, *data, model);
    CHECK(evaluate(*converted, *data, 10).loss == outcome.evaluation->loss);
    // And into the quantized phase.
    keys.pop_back();
    CHECK(run_all(net(keys)).optimizer_steps == 4);
  }
}

TEST_CASE("a run whose quant.compute ended with a phase is converted to a model that is read back") {
  const KeepModes keep;
  const RunConfig config = net({"quant.compute=simulated", "quant.weights={dtype: int8, granularity: channel}",
                                "quant.phases=[{from: 0 steps}, {from: 2 steps, recipe: w8a8}]"});
  TempDir temp;
  const std::string folder = create_run_folder(config, temp.file("run"));
  const TrainOutcome outcome = run_all(config, folder);
  const std::string checkpoint = folder + "/last.safetensors", model = temp.file("model");
  const auto data = open_dataset(config, *config.data.test);
  const auto learner = load_evaluator(config, *data, checkpoint);
  const RunConfig written = converted_config(config, *learner);
  learner->convert();
  save_converted(model, *learner, read_checkpoint_header(checkpoint), written);
  const RunConfig read = parse_config(read_checkpoint_header(model).config, model);
  CHECK(evaluate(*load_evaluator(read, *data, model), *data, 10).loss == outcome.evaluation->loss);
}
