#include "bitgrad/train/trainer.h"

#include <nlohmann/json.hpp>

#include "bitgrad/base/log.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;
using Json = nlohmann::json;

namespace {

// The metrics without what depends on the clock, and without train lines, whose means start anew at a resume.
std::vector<Json> evaluations(const std::string& folder) {
  std::vector<Json> lines;
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    Json j = Json::parse(line);
    if (j.at("event") == "eval") lines.push_back(std::move(j));
  }
  return lines;
}

void check_resume_everywhere(const RunConfig& config) {
  TempDir temp;
  const std::string calm_folder = create_run_folder(config, temp.file("calm"));
  const TrainOutcome calm = run_all(config, calm_folder);
  const int64_t total = Trainer(config).total_microbatches();
  for (int64_t stop = 1; stop <= total; ++stop) {
    INFO("stopped after microbatch " << stop << " of " << total);
    const std::string folder = create_run_folder(config, temp.file("stop" + std::to_string(stop)));
    const TrainOutcome part = run_part(config, folder, stop);
    if (part.stopped != StopRequest::kNone) {
      CHECK(part.stopped == StopRequest::kTerminate);
      CHECK(Json::parse(text_of(folder + "/summary.json")).at("status") == "interrupted");
      const double before = read_checkpoint_header(folder + "/last.safetensors").counters.train_seconds;
      const TrainOutcome rest = resume_run(folder);
      CHECK(rest.state_hash == calm.state_hash);
      CHECK(rest.counters.best_accuracy == calm.counters.best_accuracy);
      CHECK(rest.counters.best_epoch == calm.counters.best_epoch);
      CHECK(rest.optimizer_steps == calm.optimizer_steps);
      CHECK(rest.seconds > before);  // of the whole run
    } else {
      CHECK(part.state_hash == calm.state_hash);
    }
    CHECK(evaluations(folder) == evaluations(calm_folder));
    CHECK(text_of(folder + "/config.yaml") == text_of(calm_folder + "/config.yaml"));
  }
}

}  // namespace

TEST_CASE("a run that was stopped at any microbatch ends with the state of the calm run") {
  const KeepModes keep;
  check_resume_everywhere(small_config({"train.stop=2 epochs"}));
  check_resume_everywhere(small_config({"train.stop=2 epochs"}, kSmallInt4));
}

TEST_CASE("the same holds inside windows of accumulation and between requantizations") {
  const KeepModes keep;
  // 15 microbatches, windows of 2: the last one is partial, and windows run across epochs. Codes are made with every,
  // or every second window.
  check_resume_everywhere(small_config({"batch.global=20", "quant.requantize_every=4"}));
  check_resume_everywhere(small_config(
      {"batch.global=20", "quant.requantize_every=4", "train.eval.every=1 steps", "train.stop=1 epochs"}, kSmallInt4));
  // More than 8 microbatches a window: bf16 sums round stochastically.
  check_resume_everywhere(
      small_config({"batch.global=9", "batch.micro=1", "quant.requantize_every=9", "train.stop=3 steps"}, kSmallInt4));
}

TEST_CASE("a second stop and resume changes nothing either") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"batch.global=20", "quant.requantize_every=4"});
  const std::string calm = run_all(config).state_hash;
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 3);
  for (int i = 0; i < 20; ++i) {
    Trainer trainer(run_folder_config(folder));
    trainer.resume(run_folder_checkpoint(folder));
    TrainHooks hooks;
    hooks.stop_requested = [] { return StopRequest::kInterrupt; };
    const TrainOutcome part = trainer.run(folder, hooks);
    if (part.stopped == StopRequest::kNone) {
      CHECK(part.state_hash == calm);
      return;
    }
    CHECK(part.stopped == StopRequest::kInterrupt);
    CHECK(part.state_hash != calm);
  }
  FAIL("the run never ended");
}

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

TEST_CASE("one, two and four threads give one state") {
  const KeepModes keep;
  for (const char* text : {kSmallTfc, kSmallInt4}) {
    // 130 samples a batch: work is cut into several pieces.
    const auto hash = [&](const char* threads) {
      return run_all(small_config({"data.train.size=260", "batch.global=130", "batch.micro=130",
                                   std::string("device.threads=") + threads},
                                  text))
          .state_hash;
    };
    const std::string one = hash("1");
    CHECK(hash("2") == one);
    CHECK(hash("4") == one);
  }
}

TEST_CASE("another seed gives another state, and the same seed the same one") {
  const KeepModes keep;
  const std::string first = run_all(small_config()).state_hash;
  CHECK(run_all(small_config()).state_hash == first);
  CHECK(run_all(small_config({"run.seed=6"})).state_hash != first);
}

TEST_CASE("in strict mode scalar, AVX2 and AVX-512 give one state") {
  const KeepModes keep;
  for (const char* text : {kSmallTfc, kSmallInt4}) {
    const RunConfig config =
        small_config({"run.bits=strict", "data.train.size=130", "batch.global=65", "batch.micro=65"}, text);
    set_isa_cap(IsaLevel::kScalar);
    const std::string scalar = run_all(config).state_hash;
    for (const IsaLevel level : {IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
      set_isa_cap(level);
      INFO(text << "cap " << static_cast<int>(level) << ": " << isa_names(cpu_isa()));
      CHECK(run_all(config).state_hash == scalar);
    }
  }
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
  CHECK(fresh.evaluate_test().accuracy == best);
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
    const std::vector<double> codes = p->value().numbers(), masters = p->master().numbers();
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
  CHECK(contains(text, "small.yaml:"));
}

TEST_CASE("resuming with another configuration or seed is told") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config();
  const std::string folder = create_run_folder(config, temp.file("run"));
  run_part(config, folder, 3);
  const std::string path = folder + "/last.safetensors";
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  Trainer(config).resume(path);
  CHECK(warnings.empty());
  Trainer(small_config({"optim.lr=0.5"})).resume(path);
  set_log_sink(nullptr);
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "another configuration"));
  CHECK(contains(error_of([&] { Trainer(small_config({"run.seed=9"})).resume(path); }), "seed 5"));
  CHECK(contains(error_of([&] { Trainer(small_config({"model.layers.2.linear.out=23"})).resume(path); }),
                 "layers.2.weight"));
  CHECK(error_code_of([&] { Trainer(small_config({}, kSmallInt4)).resume(path); }) == 3);
}

TEST_CASE("whatever file call fails, the run folder can be resumed to the state of the calm run") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config(
      {"train.stop=4 steps", "checkpoint.every=2 steps", "train.eval.every=4 steps", "data.train.size=20"});
  const std::string calm = run_all(config).state_hash;
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
    CHECK(resume_run(folder).state_hash == calm);
  }
  CHECK(resumed > 10);
}
