// Keys that are right by themselves and have no effect.
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/config_support.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Strings warnings_of(const std::string& quant) { return parse_config(with_quant(quant), "c.yaml").origin.warnings; }

}  // namespace

TEST_CASE("activations without a quantize layer are a warning at their place") {
  const Strings alone = warnings_of("  activations: {dtype: int8}\n");
  REQUIRE(alone.size() == 1);
  CHECK(contains(alone[0],
                 "c.yaml:11:3: quant.activations has no effect, layer inputs are not quantized: the key only applies "
                 "to quantize layers, and the model has none. Put quantize: {} before each layer"));
  const Strings beside = warnings_of("  activations: {dtype: int8}\n  recipe: w2a2\n");
  REQUIRE(beside.size() == 1);
  CHECK(contains(beside[0], "with a recipe or rules, remove quant.activations"));
  CHECK(small({}).origin.warnings.empty());
  // Nothing is said of what a run remembers.
  CHECK(
      parse_config(with_quant("  activations: {dtype: int8}\n"), "c.yaml", {}, {.run = true}).origin.warnings.empty());
}

TEST_CASE("low-bit weights that recipes replace everywhere are a warning") {
  const std::string weights = "  weights: {dtype: int4}\n";
  const Strings all = warnings_of(weights + "  recipe: w2a2\n");
  REQUIRE(all.size() == 1);
  CHECK(contains(all[0],
                 "c.yaml:11:3: quant.weights (int4 symmetric) has no effect: quant.recipe w2a2 says how to "
                 "quantize every layer"));
  CHECK(warnings_of(weights).empty());
  CHECK(warnings_of(weights + "  first: w2a2\n").empty());  // the other layers have these weights
  CHECK(warnings_of("  weights: {init: he_uniform}\n  recipe: w2a2\n").empty());
  CHECK(warnings_of(weights + "  phases: [{from: 0 steps}, {from: 2 epochs, recipe: w2a2}]\n").empty());
  const RunConfig own =
      parse_config(with_quant("  recipe: w2a2\n"), "c.yaml", {"model.layers.0.linear.weights={dtype: int8}"});
  REQUIRE(own.origin.warnings.size() == 1);
  CHECK(contains(own.origin.warnings[0],
                 "command line, argument 1: model.layers.0.linear.weights (int8) has no effect: quant.recipe w2a2 says "
                 "how to quantize this layer"));
}

TEST_CASE("idle keys of device, optimizer, names and requantization are warnings, defaults are not") {
  const auto one = [](const std::string& override, const std::string& text) {
    INFO(override);
    const Strings found = parse_config(kFloat, "c.yaml", {override}).origin.warnings;
    REQUIRE(found.size() == 1);
    CHECK(found[0] == "command line, argument 1: " + text);
  };
  one("device.graph=false", "device.graph has no effect with device.kind cpu");
  one("device.index=1", "device.index has no effect with device.kind cpu");
  one("device.resident_data=false", "device.resident_data has no effect with device.kind cpu");
  one("optim.decay=matrices", "optim.decay (matrices) has no effect: optim.weight_decay is 0");
  one("quant.requantize_every=3", "quant.requantize_every has no effect: no layer has low-bit weights");
  one("model.ignore=[a]", "model.ignore has no effect: it is for the file of model.init_from, which is not set");
  CHECK(parse_config(kFloat, "c.yaml", {"device.graph=true", "optim.decay=all", "quant.requantize_every=1"})
            .origin.warnings.empty());
  CHECK(parse_config(kFloat, "c.yaml", {"optim={name: adam, lr: 0.1, weight_decay: 0.1, decay: matrices}"})
            .origin.warnings.empty());
  // A resolved configuration says every key.
  const RunConfig resolved = parse_config(to_yaml(small({})), "c.yaml");
  CHECK(resolved.origin.warnings.empty());
}

TEST_CASE("a schedule that changes nothing, and fixed statistics of no norm, are errors of who wrote them") {
  const auto error = [](const Strings& keys, bool run = false) {
    return error_of([&] { parse_config(kFloat, "c.yaml", keys, {.run = run}); });
  };
  CHECK(contains(error({"schedule={name: plateau, factor: 1, patience: 1}", "data.valid={fraction: 0.2}"}),
                 "schedule.factor: 1 changes nothing, plateau keeps the rate constant"));
  CHECK(contains(error({"schedule={name: step, every: 1 epochs, factor: 1}"}), "schedule.factor: 1 changes nothing"));
  CHECK(contains(error({"schedule={name: exponential, every: 1 epochs, gamma: 1}"}),
                 "schedule.gamma: 1 changes nothing"));
  CHECK(contains(error({"schedule={name: cosine, final: 1}"}), "schedule.final: 1 changes nothing"));
  CHECK(contains(error({"schedule={name: multistep, at: [1 steps, 2 steps], factors: [1, 1]}"}),
                 "schedule.factors: 1 alone changes nothing"));
  CHECK(contains(error({"optim.weight_decay=0.1", "optim.decay_schedule={name: cosine, final: 1}"}),
                 "optim.decay_schedule.final: 1 changes nothing"));
  CHECK(error({"schedule={name: multistep, at: [1 steps, 2 steps], factors: [0.5, 1]}"}).empty());
  CHECK(error({"schedule={name: cosine, final: 1}"}, true).empty());  // what a run remembers
  const std::string phases = "quant.phases=[{from: 0 steps}, {from: 1 steps, norm_statistics: false}]";
  CHECK(contains(error({phases}), "quant.phases.1.norm_statistics: false fixes the running statistics of batch_norm"));
  CHECK(error({phases, "model.layers=[{linear: {out: 4}}, {batch_norm: {}}, {linear: {out: 10}}]"}).empty());
}
