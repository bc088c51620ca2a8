// Phases, first numbers and model files as runs use them: from YAML, over run folders.
#include <filesystem>

#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// 5 steps an epoch.
constexpr const char* kPhases = R"yaml(version: 1
run: {name: small_phases, seed: 7}
data:
  train: {format: digits, size: 50}
  test: {format: digits, size: 30}
model:
  layers:
    - linear: {out: 12}
    - batch_norm: {}
    - relu: {}
    - dropout: {p: 0.1}
    - linear: {out: 10}
quant:
  recipe: 8da4w
  phases:
    - {from: 0 steps, quantization: off}
    - {from: 3 steps}
    - {from: 1 epochs, recipe: int3wo, first: w4a4}
    - {from: 2 epochs, quantization: frozen, observers: false}
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
train: {stop: 3 epochs}
checkpoint: {every: 4 steps}
)yaml";

RunConfig phases_config(const std::vector<std::string>& overrides = {}) { return small_config(overrides, kPhases); }
RunConfig float_config() { return phases_config({"~quant.phases", "~quant.recipe"}); }

std::string run_in(const RunConfig& config, const std::string& folder) {
  create_run_folder(config, folder);
  run_all(config, folder);
  return folder;
}

std::map<std::string, std::vector<double>> masters_of(Learner& learner) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* p : learner.model().parameters())
    if (!contains(p->path(), ".input")) all[p->path()] = p->master().elements();
  return all;
}

}  // namespace

TEST_CASE("a checkpoint of a later phase than the configuration has is refused") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = phases_config({"train.stop=11 steps"});
  run_in(config, temp.file("run"));
  const RunConfig fewer = phases_config({"~quant.phases"});
  const auto data = open_dataset(fewer, *fewer.data.test);
  CHECK(contains(error_of([&] { load_evaluator(fewer, *data, temp.file("run") + "/last.safetensors"); }),
                 "was saved in phase 3 of quantization, the configuration has 1"));
}

TEST_CASE("a run begins with the values of another one, from its folder, its checkpoint or a model") {
  const KeepModes keep;
  TempDir temp;
  const std::string source = run_in(float_config(), temp.file("float"));
  Trainer floats(float_config());
  floats.resume(source + "/last.safetensors");
  const auto wanted = masters_of(floats.learner());
  const Evaluation known = floats.evaluate_held_out();
  floats.learner().convert();
  save_model(temp.file("model"), floats.learner().model(), {});
  for (const std::string& from : {source, source + "/last.safetensors", temp.file("model")}) {
    INFO(from);
    Trainer trainer(phases_config({"model.init_from=" + from}));
    CHECK(masters_of(trainer.learner()) != wanted);
    trainer.start();
    CHECK(masters_of(trainer.learner()) == wanted);
    CHECK(trainer.learner().state().step == 0);
    CHECK(trainer.evaluate_held_out().loss == known.loss);  // it is off in the first phase
  }
  // Evaluations and runs take them too.
  CHECK(Trainer(phases_config({"model.init_from=" + source})).evaluate_held_out().loss == known.loss);
}

TEST_CASE("a resumed run does not read model.init_from again") {
  const KeepModes keep;
  TempDir temp;
  const std::string source = run_in(float_config(), temp.file("float"));
  const RunConfig config = phases_config({"model.init_from=" + source});
  const std::string uninterrupted = run_all(config).state_hash;
  CHECK(uninterrupted != run_all(phases_config()).state_hash);
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 4);
  std::filesystem::remove_all(source);
  CHECK(resume_run(folder).state_hash == uninterrupted);
  Trainer gone(config);
  CHECK(error_code_of([&] { gone.start(); }) == 3);
  CHECK(contains(error_of([&] { Trainer(config).run(""); }), source));
}

TEST_CASE("a run logs what it begins with, the table of its layers, and each phase") {
  const KeepModes keep;
  TempDir temp;
  const std::string source = run_in(float_config(), temp.file("float"));
  const LogLines log;
  run_all(phases_config({"model.init_from=" + source}));
  const auto count = [&](const std::string& text) {
    return std::count_if(log.lines.begin(), log.lines.end(),
                         [&](const std::string& line) { return contains(line, text); });
  };
  CHECK(log.warnings.empty());
  CHECK(count(concat("initial values from ", source, "/last.safetensors: 8 tensors copied")) == 1);
  CHECK(count("phase 0 at step 0") == 1);
  CHECK(count("phase 1 at step 3: quantization on, observers on") == 1);
  CHECK(count("phase 2 at step 5: quantization on, observers on, all layers int3wo, first w4a4") == 1);
  CHECK(count("phase 3 at step 10: quantization frozen, observers off") == 1);
  CHECK(count("layers.4 ") >= 4);
  // Which rule holds which layer, when the run starts and where a phase brings rules.
  const auto lines_equal = [&](const std::string& text) {
    return std::count(log.lines.begin(), log.lines.end(), text);
  };
  CHECK(count("layer     rule") == 2);
  CHECK(lines_equal("layers.0  all   8da4w") == 1);
  CHECK(lines_equal("layers.0  first  w4a4") == 1);
  CHECK(lines_equal("layers.4  all    int3wo") == 1);
}

TEST_CASE("a resumed run logs the rules of the phase that it is in, a run without rules none") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = phases_config({"quant.phases.2={from: 1 epochs, rules: [{layers: \"*.4\", recipe: w4a4}]}"});
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 12);
  std::vector<std::string> lines;
  const auto tables = [&] {
    return std::count_if(lines.begin(), lines.end(), [](const std::string& l) { return contains(l, "rule"); });
  };
  struct Sink {
    explicit Sink(std::vector<std::string>& lines) {
      set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
    }
    ~Sink() { set_log_sink(nullptr); }
  } const sink(lines);
  resume_run(folder);
  CHECK(tables() == 2);  // the title, and "(no rule)"
  CHECK(std::count(lines.begin(), lines.end(), "layers.0  (no rule)  8da4w") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "layers.4  *.4        w4a4") == 1);
  lines.clear();
  run_all(float_config());
  CHECK(tables() == 0);
}

TEST_CASE("a phase that a short run never reaches is reported, and the run continues") {
  const KeepModes keep;
  const LogLines log;
  CHECK(run_all(phases_config({"train.stop=5 steps"})).optimizer_steps == 5);
  REQUIRE(log.warnings.size() == 2);
  CHECK(log.warnings[0] == "quant.phases.2 never starts: it begins at step 5, the run ends after 5");
  CHECK(contains(log.warnings[1], "quant.phases.3 never starts: it begins at step 10"));
}

TEST_CASE("phases that do not fit the run are found where they are written, before training") {
  const KeepModes keep;
  const auto error = [](const std::vector<std::string>& overrides) {
    return error_of([&] { Trainer trainer(phases_config(overrides)); });
  };
  const std::string order = error({"quant.phases.1.from=5 steps"});
  INFO(order);
  CHECK(contains(order, "small.yaml:18:"));
  CHECK(contains(order, "phase 2 begins after the previous one: got step 5, expected 6 or more"));
}
