// A window in which no target counts is skipped: parameters, moments, codes, draws and counters are those of a run that
// never saw it.
#include <thread>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/nn/layers.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_runs.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Draws of every kind: dropout, codes by stochastic rounding, bf16 gradients; decay, momentum, batch norm.
std::unique_ptr<Learner> learner_of(int64_t accumulate, int64_t every, WindowSum sum = WindowSum::kRunning) {
  ModelSpec spec;
  spec.input.sample = {2, 3};
  LayerSpec first{.kind = "linear", .attributes = {{"out", 6}, {"bias", true}}};
  first.weight.grad = dtypes::bf16;
  first.weight.quant.emplace();
  first.weight.quant->dtype = dtypes::int4;
  first.weight.quant->scheme = "absmax";
  first.weight.quant->rounding = Rounding::kStochastic;
  spec.layers = {first,
                 {.kind = "batch_norm"},
                 {.kind = "dropout", .attributes = {{"p", 0.3}}},
                 {.kind = "linear", .attributes = {{"out", 4}}}};
  auto learner = std::make_unique<Learner>(
      make_model(spec), find_loss("softmax_cross_entropy"), OptimizerSpec{.name = "adamw", .weight_decay = 0.1f},
      RequantPolicy{accumulate, every}, [](int64_t step) { return 0.1f / static_cast<float>(step + 1); }, 3);
  learner->set_window_sum(sum);
  learner->plan({.input = spec.input, .outputs = 4, .train_samples = 2, .eval_samples = 2});
  return learner;
}

// Microbatch `i`, or one in which nothing counts.
StepResult train(Learner& learner, int64_t i, bool counts = true) {
  const Tensor x = random_tensor({2, 2, 3}, dtypes::fp32, static_cast<uint64_t>(10 + i));
  std::vector<double> y(4, kIgnoredClass);
  for (size_t p = 0; counts && p < 4; ++p)
    y[p] =
        (static_cast<size_t>(i) + p) % 3 == 0 ? kIgnoredClass : static_cast<double>((static_cast<size_t>(i) + p) % 4);
  return learner.microbatch(x, Tensor::from_elements({2, 2}, dtypes::int32, y));
}

// Everything but the count of what was skipped.
std::string state_of(Learner& learner) {
  learner.train_state().skipped = {};
  return state_hash(learner, RunCounters{});
}

}  // namespace

TEST_CASE("A window without targets leaves everything as if it had not been there") {
  for (const WindowSum sum : {WindowSum::kRunning, WindowSum::kTree})
    for (const int64_t accumulate : {1, 2, 3})
      for (const int64_t factor : {1, 3}) {  // in a requantize window: early, within, last
        INFO(accumulate << " microbatches, codes every " << factor << " steps, " << enum_name(sum));
        const auto twin = learner_of(accumulate, factor * accumulate, sum);
        const auto learner = learner_of(accumulate, factor * accumulate, sum);
        int64_t skipped = 0;
        for (int64_t w = 0; w < 7; ++w) {
          for (int64_t empty = 0; empty < (w % 3 == 0 ? 1 : w % 3 - 1); ++empty, ++skipped)
            for (int64_t m = 0; m < accumulate; ++m) {
              const StepResult r = train(*learner, 50 + m, /*counts=*/false);
              CHECK_FALSE(r.stepped);
              CHECK(r.skipped == (m + 1 == accumulate));
              CHECK(r.loss == 0);
            }
          for (int64_t m = 0; m < accumulate; ++m) {
            CHECK(train(*learner, w * accumulate + m).stepped == (m + 1 == accumulate));
            train(*twin, w * accumulate + m);
          }
        }
        CHECK(learner->skipped().windows == skipped);
        CHECK(learner->skipped().microbatches == skipped * accumulate);
        CHECK(learner->state().step == twin->state().step);
        CHECK(learner->since_requantize() == twin->since_requantize());
        train(*learner, 50, /*counts=*/false);
        learner->flush();
        twin->flush();
        CHECK(state_of(*learner) == state_of(*twin));
      }
}

TEST_CASE("Ranks skip a window only if nothing counts on any of them") {
  constexpr int64_t kWindow = 4;
  // Of 5 windows, one is empty on rank 0, one on both.
  const auto counts = [](int64_t w, int64_t m) { return w != 3 && (w != 1 || m >= 2); };
  const auto one = learner_of(kWindow, kWindow, WindowSum::kTree);
  for (int64_t w = 0; w < 5; ++w)
    for (int64_t m = 0; m < kWindow; ++m) train(*one, w * kWindow + m, counts(w, m));
  CHECK(one->skipped().windows == 1);
  const auto weights = [](Learner& l) { return bits_of(l.model().parameters()[0]->master()); };
  std::vector<decltype(weights(*one))> ends(2);
  std::vector<int64_t> skipped(2);
  std::vector<std::thread> threads;
  for (const auto& rank : make_thread_ranks(2))
    threads.emplace_back([&, rank] {
      const auto l = learner_of(kWindow, kWindow, WindowSum::kTree);
      l->set_communicator(rank);
      for (int64_t w = 0; w < 5; ++w)
        for (int64_t m = 2 * rank->rank(); m < 2 * rank->rank() + 2; ++m) train(*l, w * kWindow + m, counts(w, m));
      ends[static_cast<size_t>(rank->rank())] = weights(*l);
      skipped[static_cast<size_t>(rank->rank())] = l->skipped().windows;
    });
  for (std::thread& t : threads) t.join();
  CHECK(skipped == std::vector<int64_t>{1, 1});
  CHECK(ends[0] == weights(*one));
  CHECK(ends[1] == weights(*one));
}

namespace {

// Ids with labels of their own, read in order; of those in `prompts` no label counts.
class Answers final : public Dataset {
 public:
  explicit Answers(const std::vector<int64_t>& samples, const std::vector<int64_t>& prompts)
      : samples_(samples), prompts_(prompts) {}
  std::string name() const override { return "answers"; }
  int64_t size() const override { return std::ssize(samples_); }
  std::vector<int64_t> sample_shape() const override { return {6}; }
  int64_t classes() const override { return 7; }
  int64_t vocabulary() const override { return 7; }
  TargetForm target_form() const override { return {.shape = {6}, .classes = 7}; }
  EpochOrder epoch_order() const override { return {EpochOrder::Kind::kSequential, size()}; }
  void example(int64_t index, void* x, void* target) const override {
    const int64_t sample = samples_[static_cast<size_t>(index)];
    const bool prompt = std::find(prompts_.begin(), prompts_.end(), sample) != prompts_.end();
    for (int32_t p = 0; p < 6; ++p) {
      const auto id = static_cast<int32_t>((sample * 5 + p * p) % 7);
      static_cast<int32_t*>(x)[p] = id;
      static_cast<int32_t*>(target)[p] = prompt || p < 2 ? kIgnoredClass : (id + 3) % 7;
    }
  }

 private:
  std::vector<int64_t> samples_, prompts_;
};

constexpr const char* kAnswers = R"yaml(version: 1
run: {seed: 4}
data: {train: {format: tokens, file: none.bin, stored: uint16, vocabulary: 7, context: 6}}
model: {layers: [embedding: {num: 7, dim: 5, flat: false}, dropout: {p: 0.2}, linear: {out: 7}]}
quant: {weights: {dtype: int4, scheme: absmax, rounding: stochastic}, requantize_every: 2}
batch: {global: 1}
optim: {name: adamw, lr: 0.1, weight_decay: 0.1}
schedule: {name: step, every: 5 steps, factor: 0.5}
train: {stop: 3 epochs}
checkpoint: {every: 1 epochs}
log: {every: 2 steps}
)yaml";

std::vector<int64_t> samples_without(const std::vector<int64_t>& left_out) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < 8; ++i)
    if (std::find(left_out.begin(), left_out.end(), i) == left_out.end()) samples.push_back(i);
  return samples;
}

std::unique_ptr<Trainer> trainer_of(const std::vector<int64_t>& prompts, bool left_out, const std::string& config) {
  const std::vector<int64_t> samples = samples_without(left_out ? prompts : std::vector<int64_t>{});
  return std::make_unique<Trainer>(small_config({}, config.c_str()), std::make_unique<Answers>(samples, prompts),
                                   nullptr);
}

}  // namespace

TEST_CASE("A run passes over samples without targets, counts them, and ends as one whose order leaves them out") {
  const KeepModes keep;
  for (const std::vector<int64_t>& prompts : {std::vector<int64_t>{4}, {0}, {7}, {0, 3, 7}}) {
    const TempDir folder;
    const auto trainer = trainer_of(prompts, false, kAnswers), twin = trainer_of(prompts, true, kAnswers);
    const LogLines log;
    const TrainOutcome outcome = trainer->run(folder.path());
    CHECK(std::count_if(log.warnings.begin(), log.warnings.end(),
                        [](const std::string& line) { return contains(line, "no target counts in the window"); }) == 1);
    const TrainOutcome uninterrupted = twin->run("");
    CHECK(outcome.optimizer_steps == uninterrupted.optimizer_steps);
    CHECK(outcome.skipped_windows == 3 * std::ssize(prompts));
    CHECK(trainer->ended());
    for (size_t i = 0; i < trainer->learner().model().parameters().size(); ++i)
      CHECK(bits_of(trainer->learner().model().parameters()[i]->master()) ==
            bits_of(twin->learner().model().parameters()[i]->master()));
    const Json summary = Json::parse(text_of(folder.path() + "/summary.json"));
    CHECK(summary.at("status").text() == "finished");
    CHECK(summary.at("skipped_windows").get<int64_t>() == outcome.skipped_windows);
    CHECK(contains(text_of(folder.path() + "/metrics.jsonl"), "\"skipped_windows\":"));
  }
}

TEST_CASE("A run that skips windows is resumed from any of its microbatches") {
  const KeepModes keep;
  const std::vector<int64_t> prompts{0, 3, 7};
  for (const bool two : {false, true}) {
    std::string config = kAnswers;
    if (two) config.replace(config.find("batch: {global: 1}"), 18, "batch: {global: 2, micro: 1}");
    const TempDir uninterrupted_folder;
    const TrainOutcome uninterrupted =
        trainer_of(two ? std::vector<int64_t>{2, 3, 6, 7} : prompts, false, config)->run(uninterrupted_folder.path());
    for (int stop = 1; stop < 24; ++stop) {
      INFO("stopped after " << stop << " microbatches");
      const TempDir folder;
      const auto data = two ? std::vector<int64_t>{2, 3, 6, 7} : prompts;
      int polls = 0;
      TrainHooks hooks;
      hooks.stop_requested = [&] { return ++polls >= stop ? StopRequest::kInterrupt : StopRequest::kNone; };
      trainer_of(data, false, config)->run(folder.path(), hooks);
      const auto rest = trainer_of(data, false, config);
      rest->resume(folder.path() + "/last.safetensors");
      const TrainOutcome end = rest->run(folder.path());
      CHECK(end.state_hash == uninterrupted.state_hash);
      CHECK(end.skipped_windows == uninterrupted.skipped_windows);
      CHECK(text_of(folder.path() + "/summary.json").size() > 0);
    }
  }
}

TEST_CASE("An evaluation without targets is an error of the data, after the state is saved") {
  const KeepModes keep;
  const TempDir folder;
  const std::vector<int64_t> prompts{1, 3};
  Trainer trainer(small_config({}, kAnswers), std::make_unique<Answers>(samples_without(prompts), prompts),
                  std::make_unique<Answers>(prompts, prompts));
  std::string text;
  int code = 0;
  try {
    trainer.run(folder.path());
  } catch (const Error& e) {
    text = e.what();
    code = static_cast<int>(e.code());
  }
  CHECK(code == static_cast<int>(ErrorCode::kData));
  CHECK(contains(text, "answers: no target of its 2 samples counts: all are ignored"));
  CHECK(file_system().exists(folder.path() + "/last.safetensors"));
}
