#include "bitgrad/run/trainer.h"
#include "bitgrad/base/json.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "support/catch.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Digits that say they are of so many classes.
class FewDigits final : public Dataset {
 public:
  explicit FewDigits(int64_t classes) : classes_(classes) {}
  std::string name() const override { return "few digits"; }
  int64_t size() const override { return 4; }
  std::vector<int64_t> sample_shape() const override { return {28, 28}; }
  int64_t classes() const override { return classes_; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    std::fill(x, x + 784, 0.5f);
    *label = static_cast<int32_t>(index % classes_);
  }

 private:
  int64_t classes_;
};

// kSmallTfc with 9 outputs, in the file itself.
std::string without_last_score() {
  std::string text = kSmallTfc;
  return text.replace(text.find("out: 10"), 7, "out: 9");
}

}  // namespace

TEST_CASE("resuming a finished run trains nothing and keeps its state") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config();
  const std::string folder = create_run_folder(config, temp.file("run"));
  const TrainOutcome first = run_all(config, folder);
  const std::string metrics = text_of(folder + "/metrics.jsonl"), checkpoint = text_of(folder + "/last.safetensors");
  const TrainOutcome again = resume_run(folder);
  CHECK(again.state_hash == first.state_hash);
  CHECK(text_of(folder + "/metrics.jsonl") == metrics);
  CHECK(text_of(folder + "/last.safetensors") == checkpoint);
}

TEST_CASE("another seed gives another state, and the same seed the same one") {
  const KeepModes keep;
  const std::string first = run_all(small_config()).state_hash;
  CHECK(run_all(small_config()).state_hash == first);
  CHECK(run_all(small_config({"run.seed=6"})).state_hash != first);
}

TEST_CASE("the best checkpoint holds the first epoch that reached the highest accuracy") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"train.stop=8 epochs"});
  const std::string folder = create_run_folder(config, temp.file("run"));
  std::vector<EvalEvent> events;
  TrainHooks hooks;
  hooks.on_eval = [&](const EvalEvent& e) { events.push_back(e); };
  const TrainOutcome outcome = Trainer(config).run(folder, hooks);
  REQUIRE(events.size() == 8);
  double best = -1;
  int64_t epoch = 0;
  for (const EvalEvent& e : events) {
    CHECK(e.best == (e.accuracy > best));
    if (e.accuracy > best) best = e.accuracy, epoch = e.epoch;
  }
  CHECK(outcome.counters.best_accuracy == best);
  CHECK(outcome.counters.best_epoch == epoch);
  CHECK(outcome.counters.last_accuracy == events.back().accuracy);
  const CheckpointHeader header = read_checkpoint_header(folder + "/best.safetensors");
  CHECK(header.counters.epoch == epoch);
  CHECK(header.counters.best_accuracy == best);
  Trainer fresh(config);
  load_checkpoint(folder + "/best.safetensors", fresh.learner());
  CHECK(fresh.evaluate_held_out().accuracy == best);
}

TEST_CASE("evaluations and checkpoints are not missed when one window ends several epochs") {
  const KeepModes keep;
  TempDir temp;
  // 2 microbatches an epoch, 5 a window: epochs 1 and 2 end in the first window, 3, 4 and 5 in the second.
  const RunConfig config = small_config({"data.train.size=20", "batch.global=50", "quant.requantize_every=5",
                                         "train.stop=10 epochs", "train.eval.every=2 epochs"});
  std::vector<int64_t> steps;
  TrainHooks hooks;
  hooks.on_eval = [&](const EvalEvent& e) { steps.push_back(e.step); };
  Trainer(config).run("", hooks);
  CHECK(steps == std::vector<int64_t>{1, 2, 3, 4});
}

TEST_CASE("the last, partial window is flushed and its codes are made anew") {
  const KeepModes keep;
  // 5 microbatches, windows of 2, codes every 4: the flush is a third step on 10 samples, and codes follow it.
  Trainer trainer(small_config({"batch.global=20", "quant.requantize_every=4", "train.stop=1 epochs"}));
  const TrainOutcome outcome = trainer.run("");
  CHECK(outcome.optimizer_steps == 3);
  CHECK(trainer.learner().window_samples() == 0);
  for (Parameter* p : trainer.learner().model().parameters()) {
    if (!p->low_bit()) continue;
    const std::vector<double> codes = p->value().elements(), masters = p->master().elements();
    for (size_t i = 0; i < codes.size(); ++i) REQUIRE(codes[i] == (masters[i] >= 0 ? 1 : -1));
  }
}

TEST_CASE("a run of steps ends after that many optimizer steps") {
  const KeepModes keep;
  const TrainOutcome outcome =
      run_all(small_config({"train.stop=4 steps", "batch.global=20", "quant.requantize_every=2"}));
  CHECK(outcome.optimizer_steps == 4);
  CHECK(outcome.counters.epoch == 1);
  CHECK(outcome.counters.position == 30);
}

TEST_CASE("a run whose microbatches no counter holds is refused; lengths that never come are not") {
  const KeepModes keep;
  const std::string each = "batch={global: 2, micro: 2}";
  CHECK(contains(error_of([&] {
                   Trainer(small_config({"train.stop=1000000000000 epochs", "data.train.size=20000", each}));
                 }),
                 "[train.stop] 1000000000000 epochs of 10000 microbatches each: got more than 9007199254740992"));
  const std::string never = "1000000000000 epochs";
  CHECK(run_all(small_config({"train.stop=3 steps", "data.train.size=20000", each, "schedule.every=" + never,
                              "checkpoint.every=" + never, "log.quantization=" + never}))
            .optimizer_steps == 3);
}

TEST_CASE("without test data a run trains and states no accuracy") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"~data.test"});
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_all(config, folder);
  const Json summary = Json::parse(text_of(folder + "/summary.json"));
  CHECK(summary.at("best_accuracy").is_null());
  CHECK(summary.at("last_accuracy").is_null());
  CHECK_FALSE(file_system().exists(folder + "/best.safetensors"));
  CHECK(file_system().exists(folder + "/last.safetensors"));
}

TEST_CASE("a model that does not fit the data is refused at its layer") {
  const KeepModes keep;
  const std::string text = error_of([] { Trainer(small_config({"model.layers.6.linear.out=7"})); });
  CHECK(contains(text, "7"));
  CHECK(contains(text, "10"));
  CHECK(contains(text, "command line, argument 1"));
  CHECK(contains(text, "   | model.layers.6.linear.out=7\n   |                           ^\n"));
  CHECK(
      contains(error_of([] { Trainer(small_config({}, without_last_score().c_str())); }), "small.yaml:15:21: error: "));
  // 100 outputs are two groups, which the check of the configuration knows.
  const std::string groups = error_of([] {
    small_config(
        {"model.layers=[{linear: {out: 100}}, {quantize: {dtype: int8}}, {linear: {out: 20, weights: "
         "{granularity: group(64)}, backward: {gx: int8}}}, {relu: {}}, {linear: {out: 10}}]",
         "quant.weights={dtype: int8}"});
  });
  CHECK(contains(groups, "model.layers.2.linear.backward.gx: linear: gx int8 needs per-channel scales"));
  CHECK(contains(groups, "[20,100] int8 per group(64)"));
  // The caret stands under the value of the key.
  std::istringstream lines(groups);
  std::string first, source, carets;
  std::getline(lines, first), std::getline(lines, source), std::getline(lines, carets);
  CHECK(source.substr(carets.find('^'), 6) == "int8}}");
}

TEST_CASE("a network is evaluated on data of fewer classes than its outputs, not of more") {
  const KeepModes keep;
  const RunConfig config = small_config({});
  CHECK(build_evaluator(config, FewDigits(5)) != nullptr);
  CHECK(build_evaluator(config, FewDigits(10)) != nullptr);
  CHECK(contains(error_of([&] { build_evaluator(config, FewDigits(11)); }),
                 "the last layer returns 10 values, the data has 11 classes. Give that layer 11 outputs (of a preset: "
                 "model.keys)"));
}

TEST_CASE("the reported rate is that of the step just done") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"train.stop=2 epochs", "log.every=1 steps"});
  const std::string folder = create_run_folder(config, temp.file("run"));
  std::vector<double> rates;
  TrainHooks hooks;
  hooks.on_tick = [&](const TrainEvent& e) { rates.push_back(e.lr); };
  Trainer(config).run(folder, hooks);
  // 5 steps an epoch; the rate is halved after the first.
  REQUIRE(rates.size() == 10);
  for (size_t i = 0; i < rates.size(); ++i) CHECK(rates[i] == static_cast<double>(i < 5 ? 0.02f : 0.01f));
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  std::vector<double> logged;
  for (std::string line; std::getline(in, line);)
    if (const Json j = Json::parse(line); j.at("event") == "train") logged.push_back(j.at("lr").get<double>());
  REQUIRE(logged.size() == 10);
  for (size_t i = 0; i < logged.size(); ++i) CHECK(static_cast<float>(logged[i]) == static_cast<float>(rates[i]));
}

TEST_CASE("the evaluation of the last step is returned, so that it is not repeated") {
  const KeepModes keep;
  Trainer trainer(small_config({"train.stop=1 epochs"}));
  const TrainOutcome outcome = trainer.run("");
  REQUIRE(outcome.evaluation.has_value());
  const Evaluation again = trainer.evaluate_held_out();
  CHECK(outcome.evaluation->accuracy == again.accuracy);
  CHECK(outcome.evaluation->loss == again.loss);
  CHECK(outcome.evaluation->samples == 30);
  // Stopped two steps after an evaluation: that one is old.
  CHECK_FALSE(run_part(small_config({}), "", 7).evaluation.has_value());
  CHECK_FALSE(run_all(small_config({"~data.test", "train.stop=1 epochs"})).evaluation.has_value());
}

TEST_CASE("the summary of a run names its end and the seconds of the whole run") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({});
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 7);
  const double before = read_checkpoint_header(folder + "/last.safetensors").counters.train_seconds;
  REQUIRE(before > 0);
  Trainer trainer(config);
  trainer.resume(folder + "/last.safetensors");
  TrainHooks hooks;
  hooks.on_tick = [](const TrainEvent&) { throw std::runtime_error("the display is gone"); };
  CHECK_THROWS_AS(trainer.run(folder, hooks), std::runtime_error);
  const Json summary = Json::parse(text_of(folder + "/summary.json"));
  CHECK(summary.at("status") == "failed");
  CHECK(summary.at("error") == "the display is gone");
  CHECK(summary.at("steps") == 8);
  CHECK(summary.at("seconds") > before);
}

TEST_CASE("a checkpoint beyond the accepted data resumes with the next epoch, and warns") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({});
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 4);
  const RunConfig fewer = small_config({"data.train.size=39"});
  const std::string path = folder + "/last.safetensors";
  CHECK(error_code_of([&] { Trainer(fewer).resume(path); }) == 3);
  const int64_t epoch = read_checkpoint_header(path).counters.epoch;
  Trainer trainer(fewer);
  const LogLines log;
  trainer.resume(path, true);
  CHECK(std::any_of(log.warnings.begin(), log.warnings.end(), [](const std::string& text) {
    return contains(text,
                    "position 40 of an epoch is past the 39 samples of data.train: the run goes on with the next");
  }));
  CHECK(trainer.counters().epoch == epoch + 1);
  CHECK(trainer.counters().position == 0);
  CHECK(trainer.run("").stopped == StopRequest::kNone);
}

TEST_CASE("resuming with another configuration or seed is reported") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config();
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 3);
  const std::string path = folder + "/last.safetensors";
  const LogLines log;
  Trainer(config).resume(path);
  CHECK(log.warnings.empty());
  Trainer(small_config({"optim.lr=0.5"})).resume(path);
  REQUIRE(log.warnings.size() == 1);
  CHECK(contains(log.warnings[0], "a configuration other than that of the saved run"));
  CHECK(contains(error_of([&] { Trainer(small_config({"run.seed=9"})).resume(path); }), "seed 5"));
  CHECK(contains(error_of([&] { Trainer(small_config({"model.layers.2.linear.out=23"})).resume(path); }),
                 "layers.2.weight"));
  CHECK(error_code_of([&] { Trainer(small_config({}, kSmallInt4)).resume(path); }) == 3);
}

TEST_CASE("for every failing file call, the run folder resumes to the same state as an uninterrupted run") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"train.stop=4 steps", "checkpoint.every=2 steps", "train.eval.every=4 steps",
                                         "data.train.size=20", "log.report=false"});
  const std::string uninterrupted = run_all(config).state_hash;
  int calls = 0;
  {
    const std::string folder = create_run_folder(config, temp.file("count"));
    FaultyFileSystem faulty(-1, FaultyFileSystem::When::kBefore, false);
    Trainer(config).run(folder);
    calls = faulty.calls();
  }
  REQUIRE(calls > 30);
  int resumed = 0;
  for (int i = 0; i < calls; ++i) {
    const auto when = static_cast<FaultyFileSystem::When>(i % 3);
    const std::string folder = create_run_folder(config, temp.file("fail" + std::to_string(i)));
    int code = 0;
    {
      FaultyFileSystem faulty(i, when, true);
      code = error_code_of([&] { Trainer(config).run(folder); });
    }
    INFO("call " << i);
    CHECK(code == static_cast<int>(ErrorCode::kMemory));
    if (!file_system().exists(folder + "/last.safetensors")) continue;
    ++resumed;
    CHECK(resume_run(folder).state_hash == uninterrupted);
  }
  CHECK(resumed > 10);
}

TEST_CASE("for every failing file call of the report, the run is finished and reports what it lacks") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"train.stop=2 steps", "data.train.size=20"});
  int calls = 0;
  {
    const std::string folder = create_run_folder(config, temp.file("count"));
    FaultyFileSystem faulty(-1, FaultyFileSystem::When::kBefore, false);
    Trainer(config).run(folder);
    calls = faulty.calls();
  }
  for (int i = calls - 13; i < calls; i += 3) {
    const std::string folder = create_run_folder(config, temp.file("fail" + std::to_string(i)));
    const LogLines log;
    {
      const FaultyFileSystem faulty(i, FaultyFileSystem::When::kBefore, true);
      CHECK(Trainer(config).run(folder).stopped == StopRequest::kNone);
    }
    INFO("call " << i << " of " << calls);
    CHECK(contains(text_of(folder + "/summary.json"), "\"finished\""));
    CHECK(!log.warnings.empty());
  }
}
