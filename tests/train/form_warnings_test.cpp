// Results that depend on other samples, and quantizers that pass no information: defaults and warnings.
#include <algorithm>

#include "nn/activation_quantizer.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "train/digits_nets.h"

namespace bitgrad::test {
namespace {

// The first warning with this text; empty if there is none.
std::string warning_with(const LogLines& log, const std::string& text) {
  for (const std::string& warning : log.warnings)
    if (contains(warning, text)) return warning;
  return {};
}

}  // namespace

TEST_CASE("by default a result does not depend on the evaluation batch, and where it does, that is said") {
  const KeepModes modes;
  const std::vector<std::string> layers{"model.layers.2=quantize: {}"};
  const auto losses = [&](const std::string& activations, std::vector<std::string>& warnings) {
    const LogLines log;
    std::vector<std::string> overrides = layers;
    overrides.push_back(concat("quant.activations=", activations));
    overrides.push_back("train.stop=1 epochs");
    const RunConfig config = digits(overrides);
    CHECK(parse_config(to_yaml(config), "again.yaml") == config);
    Trainer trainer(config);
    trainer.run("", {});
    const auto test = open_dataset(config, *config.data.test);
    std::vector<double> all;
    for (const int64_t batch : {1, 20, 100}) all.push_back(evaluate(trainer.learner(), *test, batch).accuracy);
    warnings = log.warnings;
    return all;
  };
  std::vector<std::string> warnings;
  const auto warned = [&] {
    return std::any_of(warnings.begin(), warnings.end(), [](const std::string& w) {
      return contains(w, "come from the whole batch: the result of a sample depends on the others");
    });
  };
  for (const char* activations :
       {"{dtype: int4}", "{dtype: uint8}", "{dtype: ternary}", "{dtype: int1}", "{dtype: bint1}",
        "{dtype: int4, granularity: channel(1)}", "{dtype: int8, scheme: symmetric}"}) {
    INFO(activations);
    const std::vector<double> all = losses(activations, warnings);
    CHECK(all[0] == all[1]);
    CHECK(all[0] == all[2]);
    CHECK(!warned());
  }
  losses("{dtype: int4, observer: {name: none}}", warnings);
  CHECK(warned());
}

TEST_CASE("no recipe makes results depend on the evaluation batch, of images too") {
  const KeepModes modes;
  const std::vector<std::string> images{
      "model.layers=[conv2d: {out: 4, kernel: 3}, relu: {}, conv2d: {out: 4, kernel: 3, stride: 4}, "
      "flatten: {}, linear: {out: 10}]"};
  for (const std::string& recipe : recipe_names())
    for (const auto& net : {std::vector<std::string>{}, images}) {
      std::vector<std::string> overrides = net;
      overrides.push_back("quant.recipe=" + recipe);
      const LogLines log;
      const RunConfig config = digits(overrides);
      const auto learner = build_learner(config, *open_dataset(config, config.data.train));
      for (Module* module : {static_cast<Module*>(&learner->model())})
        for (Quantizable* slot : module->quantizables())
          if (const ActivationQuantizer* q = slot->input_quantizer()) CHECK(!q->scales_of_batch());
    }
}

TEST_CASE("signs of values that are never negative are warned of before the run, and codes that all agree in it") {
  const KeepModes modes;
  const auto warning = [](const std::vector<std::string>& overrides, const std::string& text) {
    std::vector<std::string> all = overrides;
    all.push_back("train.stop=1 epochs");
    all.push_back("log.quantization=1 epochs");
    const LogLines log;
    Trainer(digits(all)).run("", {.on_quant = [](const QuantEvent&) {}});
    return warning_with(log, text);
  };
  const std::string kNever = "is never negative, so its signs are all +1", kSame = "values have one code";
  for (const char* kind : {"relu", "relu2", "sigmoid"}) {
    const std::string layer = concat("model.layers.2=", kind, ": {}");
    CHECK(contains(warning({"quant.recipe=w1a1", layer}, kNever), "the input of layers.3 "));
    CHECK(contains(warning({"quant.recipe=w1a1", layer}, kSame), "the input of layers.3: "));
  }
  const std::vector<std::string> signs{"quant.recipe=w1a1", "model.layers.2=hardtanh: {}",
                                       "model.layers.5=hardtanh: {}"};
  CHECK(warning(signs, kNever).empty());
  CHECK(warning(signs, kSame).empty());
  std::vector<std::string> bytes = signs;
  bytes.push_back("~data.affine");
  CHECK(contains(warning(bytes, kNever), "the input of layers.0 "));
}

}  // namespace bitgrad::test
