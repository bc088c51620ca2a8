// data.valid, train.early_stop, and evaluations that a request to stop cuts short.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "bitgrad/base/json.h"
#include "bitgrad/data/samples.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Keys = std::vector<std::string>;
const Keys kFraction{"data.train.size=60", "data.valid.fraction=0.2", "train.stop=2 epochs"};

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// Lines of an event, without what the clock says.
std::vector<Json> events(const std::string& folder, const std::string& kind) {
  std::vector<Json> out;
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (Json j = Json::parse(line); j.at("event") == kind) {
      for (const char* key : {"samples_per_s", "gmacs_per_s"}) j.erase(key);
      out.push_back(std::move(j));
    }
  return out;
}
Json summary_of(const std::string& folder) {
  Json s = Json::parse(text_of(folder + "/summary.json"));
  for (const char* key : {"seconds", "memory"}) s.erase(key);
  return s;
}
std::vector<float> samples_of(const Dataset& data) {
  std::vector<float> all(static_cast<size_t>(data.size() * data.features()));
  int32_t label = 0;
  for (int64_t i = 0; i < data.size(); ++i) data.sample(i, all.data() + i * data.features(), &label);
  return all;
}

// Stops within the n-th batch of evaluations, counted from 1.
struct CutAt {
  explicit CutAt(int64_t n) : left(n) {
    hooks.cut_evaluation = [this] { return --left < 0; };
    hooks.stop_requested = [this] { return left < 0 ? StopRequest::kTerminate : StopRequest::kNone; };
  }
  int64_t left;
  TrainHooks hooks;
};

}  // namespace

TEST_CASE("a fraction of data.train selects the best model, and data.test is evaluated once with it") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig config = small_config(with(kFraction, {"train.stop=5 epochs"}));
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  CHECK(contains(to_yaml(config), "  valid: {fraction: 0.2}\n"));
  const auto train = open_dataset(config, config.data.train), valid = open_dataset(config, *config.data.valid);
  CHECK(train->size() == 48);
  CHECK(valid->size() == 12);
  CHECK(samples_of(*open_dataset(small_config(with(kFraction, {"run.seed=9"})), config.data.train)).size() > 0);

  const std::string folder = create_run_folder(config, temp.file("run"));
  std::vector<EvalEvent> told;
  TrainHooks hooks;
  hooks.on_eval = [&](const EvalEvent& e) { told.push_back(e); };
  Trainer trainer(config);
  const TrainOutcome outcome = trainer.run(folder, hooks);
  REQUIRE(told.size() == 6);
  for (size_t i = 0; i < 5; ++i) CHECK((told[i].split == "valid" && !told[i].final));
  CHECK((told[5].split == "test" && told[5].final && !told[5].best));
  CHECK(told[5].step == outcome.counters.best_step);
  for (size_t i = 0; i < 5; ++i)
    if (told[i].step == told[5].step) CHECK(told[5].epoch == told[i].epoch);
  CHECK(outcome.selected_on == "valid");
  CHECK(outcome.evaluated == "test");
  CHECK(outcome.evaluation->samples == 30);

  // The numbers are those of best.safetensors on data.test.
  const auto test = open_dataset(config, *config.data.test);
  const auto best = load_evaluator(config, *test, folder + "/best.safetensors");
  CHECK(evaluate(*best, *test, config.train.eval.batch).metrics == outcome.evaluation->metrics);
  const Json summary = summary_of(folder);
  CHECK(summary.at("selected_on") == "valid");
  CHECK(summary.at("evaluated").at("split") == "test");
  CHECK(summary.at("evaluated").at("step") == outcome.counters.best_step);
  CHECK(summary.at("ended_by") == "train.stop");
  CHECK(state_hash(trainer.learner(), outcome.counters) == outcome.state_hash);  // the last state is still there

  // Without a test set the numbers are those on data.valid; with one alone it is said that it chose.
  const TrainOutcome alone = run_all(small_config(with(kFraction, {"~data.test"})));
  CHECK(alone.evaluated == "valid");
  const LogLines lines;
  const TrainOutcome chosen = run_all(small_config({"train.stop=1 epochs"}));
  CHECK(chosen.selected_on == "test");
  CHECK(std::any_of(lines.lines.begin(), lines.lines.end(), [](const std::string& line) {
    return contains(line, "the best model was chosen on data.test: set data.valid");
  }));
}

TEST_CASE("a validation set of its own works too, and the split of a text is its end") {
  const KeepModes keep;
  const RunConfig own = small_config({"data.valid={format: digits, size: 20, seed: 3}", "train.stop=1 epochs"});
  CHECK(own.data.valid->split == "test");
  CHECK(run_all(own).counters.best_epoch == 1);
  const TempDir temp;
  write_file_atomically(temp.file("t.txt"), "abcdefghijklmnopqrstuvwxyz0123456789abcd");  // 40 bytes
  for (const std::string format : {"text", "tokens"}) {
    const std::string extra = format == "tokens" ? "" : ", test_fraction: 0.25";
    Keys keys{
        "data.train={format: " + format + ", file: t.txt, context: 3" + extra + "}",
        "data.valid.fraction=0.25",
        format == "text" ? "data.test={format: text, file: t.txt, context: 3, test_fraction: 0.25}" : "~data.test",
        "data.root=" + temp.path(),
        "~data.affine",
        "model.layers=[{embedding: {num: 256, dim: 4}}, {linear: {out: 256}}]",
        "loss=softmax_cross_entropy",
        "~quant.weights",
        "~quant.activations"};
    if (format == "tokens") keys.push_back("data.tokenizer=bytes");
    const RunConfig config = small_config(keys);
    const auto train = open_dataset(config, config.data.train), valid = open_dataset(config, *config.data.valid);
    INFO(format);
    // text: bytes 0..19, 20..29, test 30..39; tokens: nothing is held back for a test.
    std::vector<int32_t> x(3), target(3);
    CHECK(train->size() == (format == "text" ? 17 : 9));
    train->example(train->size() - 1, x.data(), target.data());
    const int32_t last = target[2];  // of tokens
    valid->example(0, x.data(), target.data());
    CHECK(valid->size() == (format == "text" ? 7 : 3));
    if (format == "tokens") CHECK((last == '1' && x[0] == '4'));
  }
}

TEST_CASE("what data.valid and train.early_stop cannot mean is refused") {
  const auto refused = [](const Keys& keys, const std::string& part) {
    const std::string error = error_of([&] { small_config(keys); });
    INFO(error);
    CHECK(contains(error, part));
  };
  refused({"data.train.fraction=0.5"}, "data.train.fraction is a key of data.valid");
  refused({"data.valid={fraction: 0.5, format: digits, size: 5}"}, "cannot be combined with other keys");
  refused({"data.valid={}"}, "missing required key 'data.valid.format'");
  refused({"data.valid={format: digits, size: 30}"}, "data.valid and data.test are the same data");
  refused({"data.valid={format: digits, size: 9, augment: {flip: true}}"}, "augmentation applies to training samples");
  refused({"~data.test", "train.early_stop.patience=1"}, "train.early_stop needs data.test or data.valid");
  refused({"train.early_stop={}"}, "missing required key 'train.early_stop.patience'");
  CHECK(contains(error_of([] { Trainer(small_config({"train.early_stop={metric: perplexity, patience: 1}"})); }),
                 "train.early_stop: perplexity does not support loss squared_hinge"));
  CHECK(contains(error_of([] {
                   Trainer(small_config({"data.valid.fraction=0.5", "data.train.size=1"}));
                 }),
                 "expected at least 2 to split"));
}

TEST_CASE("arrays of a program are split as files are") {
  const KeepModes keep;
  std::vector<uint8_t> x(40 * 784), y(40);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<uint8_t>(i % 10);
  MemoryDatasetSpec spec;
  spec.samples = {"x", StoredAs::kUint8, {28, 28}, 40, x.data()};
  spec.targets = {"y", StoredAs::kUint8, {}, 40, y.data()};
  const RunConfig config =
      small_config({"data.train={format: memory}", "data.valid.fraction=0.25", "~data.test", "train.stop=1 epochs"});
  const TrainOutcome outcome = Trainer(config, make_memory_dataset(spec), nullptr).run("");
  CHECK(outcome.evaluated == "valid");
  CHECK(outcome.evaluation->samples == 10);
  CHECK(outcome.optimizer_steps == 3);
}

TEST_CASE("early stop ends a run after evaluations without improvement, and leaves nothing to resume") {
  const KeepModes keep;
  const TempDir temp;
  // The loss cannot get better by 1000, so the first evaluation stays the best.
  const RunConfig config = small_config(
      with(kFraction, {"train.stop=20 epochs", "train.early_stop={metric: loss, patience: 3, min_delta: 1000}"}));
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  const std::string uninterrupted_folder = create_run_folder(config, temp.file("uninterrupted"));
  Trainer trainer(config);
  const TrainOutcome uninterrupted = trainer.run(uninterrupted_folder);
  CHECK(trainer.ended());
  CHECK(uninterrupted.stopped == StopRequest::kNone);
  CHECK(uninterrupted.ended_by == "train.early_stop");
  CHECK(contains(uninterrupted.ended,
                 "loss on data.valid did not improve by more than 1000 in 3 evaluations; the best was "));
  CHECK(uninterrupted.counters.epoch == 4);
  CHECK(uninterrupted.counters.early_stop_waited == 3);
  const Json summary = summary_of(uninterrupted_folder);
  CHECK(summary.at("status") == "finished");
  CHECK(summary.at("ended_by") == "train.early_stop");

  // Resumed there is nothing to train.
  CHECK(resume_run(uninterrupted_folder).state_hash == uninterrupted.state_hash);
  CHECK(summary_of(uninterrupted_folder) == summary);

  // A run that improves each time does not end early.
  const TrainOutcome up = run_all(
      small_config({"train.early_stop={metric: loss, mode: max, patience: 1, min_delta: 0}", "train.stop=2 epochs"}));
  CHECK((up.ended_by == "train.early_stop" || up.counters.early_stop_waited == 0));
}

TEST_CASE("an evaluation that is cut short is repeated by the resumed run, which ends as an uninterrupted one") {
  const KeepModes keep;
  const TempDir temp;
  // Evaluations of 2 batches of 6 (10 steps, at 5 and 10), then data.test in 5 batches of 6.
  for (const Keys& keys :
       {with(kFraction, {"train.eval.batch=6"}),
        with(kFraction, {"train.eval.batch=6", "train.early_stop={patience: 1, min_delta: 1000}"})}) {
    const RunConfig config = small_config(keys);
    const std::string uninterrupted_folder =
        create_run_folder(config, temp.file("uninterrupted" + std::to_string(keys.size())));
    const TrainOutcome uninterrupted = run_all(config, uninterrupted_folder);
    for (int64_t n = 0; n < 10; ++n) {
      INFO("cut at batch " << n << " of the evaluations");
      const std::string folder = create_run_folder(config, temp.file(concat("cut", keys.size(), '-', n)));
      CutAt cut(n);
      const TrainOutcome part = Trainer(config).run(folder, cut.hooks);
      REQUIRE(part.stopped == StopRequest::kTerminate);
      CHECK(Json::parse(text_of(folder + "/summary.json")).at("status") == "interrupted");
      const CheckpointHeader saved = read_checkpoint_header(folder + "/last.safetensors");
      const bool in_selection = n < 6;  // a poll before each batch, and one before the end
      CHECK(saved.counters.evaluation_due == in_selection);
      CHECK(contains(part.ended, "terminated at step "));
      CHECK(contains(part.ended, "that a resumed run repeats") == in_selection);
      if (n == 1) {  // and is cut again
        Trainer again(run_folder_config(folder));
        again.resume(run_folder_checkpoint(folder));
        CutAt soon(0);
        CHECK(again.run(folder, soon.hooks).stopped == StopRequest::kTerminate);
      }
      const TrainOutcome rest = resume_run(folder);
      CHECK(rest.stopped == StopRequest::kNone);
      CHECK(rest.state_hash == uninterrupted.state_hash);
      CHECK(events(folder, "eval") == events(uninterrupted_folder, "eval"));
      CHECK(events(folder, "train") == events(uninterrupted_folder, "train"));
      CHECK(summary_of(folder) == summary_of(uninterrupted_folder));
    }
  }
}
