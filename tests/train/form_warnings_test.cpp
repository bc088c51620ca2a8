// Results that depend on other samples, and quantizers that pass no information: defaults and warnings.
#include <algorithm>

#include "bitgrad/base/file.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/dry_run.h"
#include "bitgrad/tools/ptq.h"
#include "nn/activation_quantizer.h"
#include "run/model_warnings.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/digits_nets.h"

namespace bitgrad::test {
namespace {

// The first warning with this text; empty if there is none.
std::string warning_with(const LogLines& log, const std::string& text) {
  for (const std::string& warning : log.warnings)
    if (contains(warning, text)) return warning;
  return {};
}

// Whether a warning says that results depend on the batch.
bool warned_of_batch(const LogLines& log) {
  return !warning_with(log, "come from the whole batch: the result of a sample depends on the others").empty();
}

// The outputs for 100 samples, in batches of this size.
std::vector<double> outputs_in(Learner& learner, const Dataset& data, int64_t batch) {
  std::vector<double> all;
  for (const SampleBatch& b : first_samples(data, 100, batch, 1)) {
    const std::vector<double> y = learner.predict(b.x).elements();
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

// The largest difference between the outputs in batches of 1 or 7 and of 100, relative to the largest output.
double batch_difference(Learner& learner, const Dataset& data) {
  const std::vector<double> whole = outputs_in(learner, data, 100);
  double largest = 0, most = 0;
  for (const double y : whole) largest = std::max(largest, std::abs(y));
  for (const int64_t batch : {1, 7}) {
    const std::vector<double> parts = outputs_in(learner, data, batch);
    REQUIRE(parts.size() == whole.size());
    for (size_t i = 0; i < whole.size(); ++i) most = std::max(most, std::abs(parts[i] - whole[i]));
  }
  return most / largest;
}

const std::vector<std::vector<std::string>>& nets() {
  static const std::vector<std::vector<std::string>> all{
      {},
      {"model.layers=[conv2d: {out: 4, kernel: 3}, batch_norm: {}, relu: {}, conv2d: {out: 4, kernel: 3, stride: 4}, "
       "relu: {}, flatten: {}, linear: {out: 10}]"}};
  return all;
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

TEST_CASE("the outputs of a sample do not depend on its evaluation batch, in any recipe, trained or quantized",
          "[bits]") {
  const KeepModes modes;
  for (const auto& net : nets()) {
    std::vector<std::string> short_run = net;
    short_run.insert(short_run.end(), {"train.stop=10 steps", "data.test={format: digits, size: 100}"});
    const TempDir dir;
    const RunConfig floats = digits(short_run);
    const std::string folder = create_run_folder(floats, dir.path() + "/run");
    run_all(floats, folder);
    const auto train = open_dataset(floats, floats.data.train), test = open_dataset(floats, *floats.data.test);
    const auto samples = first_samples(*train, 200, 100, 1);
    for (const std::string& recipe : recipe_names()) {
      INFO(recipe << (net.empty() ? "" : ", images"));
      const LogLines log;
      std::vector<std::string> overrides = short_run;
      overrides.push_back("quant.recipe=" + recipe);
      Trainer trainer(digits(overrides));
      trainer.run("", {});
      CHECK(batch_difference(trainer.learner(), *test) < 1e-5);
      const auto learner = load_floats(folder + "/last.safetensors", floats, *test);
      PrepareSpec spec;
      spec.all = find_recipe(recipe);
      quantize_after_training(*learner, spec, samples, samples);
      CHECK(batch_difference(*learner, *test) < 1e-5);
      CHECK(!warned_of_batch(log));
    }
  }
}

TEST_CASE("a range or a step that training never sets makes results depend on the batch, and that is said") {
  const KeepModes modes;
  const auto warned = [](const std::string& activations, const std::string& phases) {
    const TempDir dir;
    const RunConfig config = digits({"model.layers.2=quantize: {}", "quant.activations=" + activations,
                                     "quant.weights={dtype: int8}", "quant.phases=" + phases, "train.stop=6 steps"});
    const std::string folder = create_run_folder(config, dir.path() + "/run");
    const LogLines run_log;
    run_all(config, folder);
    const bool in_run = warned_of_batch(run_log);
    const LogLines log;
    load_file(open_file(folder), nullptr);
    CHECK(warned_of_batch(log) == in_run);
    return in_run;
  };
  const std::string int8 = "{dtype: int8, scheme: absmax}", lsq = "{dtype: int4, scheme: lsq}";
  CHECK(warned(int8, "[{from: 0 steps, observers: false}]"));
  CHECK(warned(int8, "[{from: 0 steps, quantization: frozen}]"));
  CHECK(warned(lsq, "[{from: 0 steps, quantization: frozen}]"));
  CHECK(!warned(int8, "[{from: 0 steps}, {from: 3 steps, quantization: frozen, observers: false}]"));
  CHECK(!warned(int8, "[{from: 0 steps, quantization: off}, {from: 3 steps, observers: false}]"));
  CHECK(!warned(lsq, "[{from: 0 steps}, {from: 3 steps, quantization: frozen}]"));
  // No phase observes, and quantization begins later.
  CHECK(warned(int8, "[{from: 0 steps, quantization: off, observers: false}, {from: 3 steps, observers: false}]"));
}

TEST_CASE("what a later phase does to the model is warned of in the run and by check, each once") {
  const KeepModes modes;
  const auto found = [](const std::string& phases, const std::string& text) {
    RunConfig config = digits({"quant.phases=" + phases, "log.quantization=off", "train.stop=6 steps"});
    const LogLines log;
    Trainer(config).run("", {});
    const auto with = [&](const std::vector<std::string>& all) {
      return std::count_if(all.begin(), all.end(), [&](const std::string& w) { return contains(w, text); });
    };
    const int64_t in_run = with(log.warnings);
    CHECK(with(dry_run(config, /*measure=*/false).warnings) == in_run);
    return in_run;
  };
  const std::string never = "is never negative", batch = "come from the whole batch";
  CHECK(found("[{from: 0 steps, recipe: w1a1, quantization: off}, {from: 3 steps}, {from: 4 steps}]", never) == 2);
  CHECK(found("[{from: 0 steps, recipe: w4a4}, {from: 3 steps, recipe: w1a1}]", never) == 2);
  CHECK(found("[{from: 0 steps, recipe: w8a8_static, quantization: off, observers: false}, "
              "{from: 3 steps, observers: false}]",
              batch) == 3);
  CHECK(found("[{from: 0 steps, recipe: w8a8_static, quantization: off}, {from: 3 steps, observers: false}]", batch) ==
        0);
}

TEST_CASE(
    "a change of the rate at or past the end of the run is a warning, as short runs of long schedules are right") {
  const KeepModes modes;
  const auto warnings = [&](const std::string& schedule, const std::string& stop) {
    const LogLines log;
    Trainer(digits({concat("schedule=", schedule), concat("train.stop=", stop)})).run("", {});
    std::vector<std::string> found;
    for (const std::string& warning : log.warnings)
      if (contains(warning, "is not before train.stop")) found.push_back(warning);
    return found;
  };
  const std::string steps = "{name: multistep, at: [1 steps, 3 steps, 1 epochs], factor: 0.5}";
  CHECK(warnings(steps, "3 steps") ==
        std::vector<std::string>{"schedule.at: 3 steps is not before train.stop (3 steps): this run ends without that "
                                 "change of the rate",
                                 "schedule.at: 1 epochs is not before train.stop (3 steps): this run ends without that "
                                 "change of the rate"});
  CHECK(warnings("{name: multistep, at: [1 steps], factor: 0.5}", "3 steps").empty());
  CHECK(warnings("{name: step, every: 2 epochs, factor: 0.5}", "2 steps").empty());  // a period, no time
}

TEST_CASE("named features that have one value are warned of once, pixels and unnamed columns are not") {
  const KeepModes modes;
  const TempDir dir;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += concat(i % 7, ",4.5,", i % 3, i == 39 ? ",blue," : ",red,", i % 2, '\n');
  write_file_atomically(dir.file("named.csv"), "a,always,b,color,y\n" + rows);
  write_file_atomically(dir.file("unnamed.csv"), rows);
  const auto warnings = [&](const std::string& train, const std::string& more = "run.seed=1") {
    const RunConfig config =
        digits({concat("data.root=", dir.path()), concat("data.train={format: csv, ", train, '}'), "~data.test",
                "~data.affine", "model.layers.6=linear: {out: 2}", "train.stop=2 steps", "batch.global=10", more});
    const LogLines log;
    Trainer(config).run("", {});
    std::vector<std::string> found;
    for (const std::string& warning : log.warnings)
      if (contains(warning, "one value in all")) found.push_back(warning);
    return found;
  };
  const std::vector<std::string> one = warnings("file: named.csv, target: y");
  REQUIRE(one.size() == 1);
  CHECK(contains(one[0], "1 of 5 features have one value in all 40 samples of data.train"));
  CHECK(contains(one[0], ": always. data.train.ignore"));
  // Of the samples that are read.
  const std::vector<std::string> first = warnings("file: named.csv, target: y, limit: 20");
  REQUIRE(first.size() == 1);
  CHECK(contains(first[0], "3 of 5 features have one value in all 20 samples"));
  CHECK(contains(first[0], ": always, color=blue, color=red. "));
  CHECK(warnings("file: named.csv, target: y", "data.valid={fraction: 0.1}").size() == 1);
  CHECK(warnings("file: named.csv, target: y, ignore: always").empty());
  CHECK(warnings("file: unnamed.csv, target: 5").empty());
  const LogLines log;
  Trainer(digits({"train.stop=1 steps"})).run("", {});
  CHECK(warning_with(log, "one value in all").empty());
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
  // Sums and rows side by side of such values are such values.
  const std::string body = "body: [{linear: {out: 32}}, {relu: {}}]";
  const auto after = [&](const std::string& layers, const std::string& layer) {
    return contains(warning({"quant.recipe=w1a1", "model.layers=[" + layers + ", {linear: {out: 10}}]"}, kNever),
                    layer);
  };
  CHECK(
      after("{linear: {out: 32}}, {hardtanh: {}}, {residual: {body: [{linear: {out: 32}}, {relu: {}}], shortcut: "
            "[{linear: {out: 32}}, {relu: {}}]}}",
            "the input of layers.3 "));
  CHECK(
      after("{linear: {out: 32}}, {hardtanh: {}}, {branches: {layers: [[{linear: {out: 32}}, {relu: {}}], "
            "[{linear: {out: 8}}, {sigmoid: {}}]]}}",
            "the input of layers.3 "));
  CHECK(!after("{linear: {out: 32}}, {hardtanh: {}}, {residual: {" + body + "}}", "the input of layers.3 "));
  CHECK(!after("{linear: {out: 32}}, {hardtanh: {}}, {branches: {layers: [[{linear: {out: 32}}, {relu: {}}], []]}}",
               "the input of layers.3 "));
  std::vector<std::string> bytes = signs;
  bytes.push_back("~data.affine");
  CHECK(contains(warning(bytes, kNever), "the input of layers.0 "));
}

TEST_CASE("fixed weights of one value, such as those of a mean, are not warned of") {
  const KeepModes modes;
  const auto warned = [](const std::string& frozen) {
    const LogLines log;
    const std::vector<std::string> overrides{
        "quant.recipe=w4a8_int", "train.stop=1 epochs", "log.quantization=1 epochs",
        "model.layers=[{linear: {out: 10, bias: false, weights: {init: constant(0.01), frozen: " + frozen +
            "}}}, {linear: {out: 10}}]",
        "optim.lr=1e-9"};
    Trainer(digits(overrides)).run("", {.on_quant = [](const QuantEvent&) {}});
    return warning_with(log, "values have one code");
  };
  CHECK(contains(warned("false"), "the weights of layers.0: all "));
  CHECK(warned("true").empty());
}

TEST_CASE("reports with a step at its floor, or one code for all values, are warned of once for each tensor") {
  const LogLines log;
  detail::CodeWarnings warnings;
  QuantEvent e;
  e.layer = "layers.0";
  e.part = "weight";
  e.dtype = "int4";
  e.scheme = "lsq";
  e.statistics.elements = 8;
  e.statistics.entropy = 2;
  e.statistics.entropy_limit = 4;
  e.statistics.scale = QuantStatistics::Scale{};
  e.statistics.scale->least = 0x1p-19;
  warnings.watch(e);
  CHECK(log.warnings.empty());
  e.statistics.scale->least = 0x1p-20;
  for (int i = 0; i < 2; ++i) warnings.watch(e);
  REQUIRE(log.warnings.size() == 1);
  CHECK(contains(log.warnings[0], "the weights of layers.0: a learned step is at its floor, 2^-20"));
  e.statistics.entropy = 0;
  for (int i = 0; i < 2; ++i) warnings.watch(e);
  REQUIRE(log.warnings.size() == 2);
  CHECK(contains(log.warnings[1], "the weights of layers.0: all 8 values have one code (int4, lsq)"));
  e.scheme = "absmax";  // whose scales have no floor that a rate leads to
  e.layer = "layers.1";
  e.statistics.entropy = 2;
  warnings.watch(e);
  CHECK(log.warnings.size() == 2);
}

}  // namespace bitgrad::test
