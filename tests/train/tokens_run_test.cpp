// Runs on tokens: a language model without attention, its loss over positions, and the keys of such data.
#include <cmath>
#include <fstream>

#include "bitgrad/base/json.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/tools/budget.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kWords =
    "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune, or to take arms against a sea of troubles, and by opposing end them. to die, to sleep, no "
    "more.";

constexpr const char* kSmallTokens = R"yaml(version: 1
run: {name: small_tokens, seed: 7}
data:
  root: /nowhere
  tokenizer: chars
  train: {format: tokens, file: a.txt, context: 6, order: random}
  test: {format: tokens, file: a.txt, context: 6}
model:
  layers:
    - embedding: {num: 26, dim: 8, flat: false}
    - residual: {body: [{rms_norm: {}}, {linear: {out: 24, bias: false}}, {swiglu: {}}, {linear: {out: 8}}]}
    - layer_norm: {bias: false}
    - head: {tie: layers.0}
quant:
  weights: {dtype: int8, scheme: absmax, granularity: channel}
batch: {global: 4}
optim: {name: adamw, lr: 0.01}
train: {stop: 24 steps, eval: {every: 8 steps, batch: 3}}
checkpoint: {every: 5 steps}
)yaml";

class TokenFolder {
 public:
  TokenFolder() { std::ofstream(folder_.file("a.txt")) << kWords; }
  RunConfig config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "data.root=" + folder_.path());
    return small_config(overrides, kSmallTokens);
  }
  const TempDir& folder() const { return folder_; }

 private:
  TempDir folder_;
};

std::string with(const std::string& part, const std::string& other) {
  std::string text = kSmallTokens;
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

}  // namespace

TEST_CASE("A model of tokens trains, and the loss picks its best state") {
  const KeepModes keep;
  const TokenFolder file;
  const RunConfig config = file.config({"train.stop=150 steps", "train.eval.every=50 steps"});
  Trainer trainer(config);
  CHECK(trainer.learner().input()->sample == Shape{6});
  const Evaluation before = trainer.evaluate_held_out();
  const std::string folder = create_run_folder(config, file.folder().file("run"));
  const TrainOutcome outcome = trainer.run(folder);
  CHECK(outcome.metric == "loss");
  CHECK(outcome.evaluation->loss < 0.8 * before.loss);
  const Json summary = Json::parse(text_of(folder + "/summary.json"));
  CHECK(summary.at("metric") == "loss");
  CHECK(summary.at("last_value") == outcome.evaluation->loss);
  CHECK(summary.at("best_value") == *trainer.best_value());
  // The whole split once, its shorter last window too: every id but the first is a target.
  const auto data = open_dataset(config, *config.data.test);
  const auto chars = static_cast<int64_t>(std::string(kWords).size());
  const int64_t test = chars - static_cast<int64_t>(static_cast<double>(chars) * 0.9);
  CHECK(data->size() == (test - 1 + 5) / 6);
  CHECK((test - 1) % 6 != 0);
  double total = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < data->size(); ++i) {
    const Tensor x = Tensor::empty({1, 6}, dtypes::int32), target = Tensor::empty({1, 6}, dtypes::int32);
    data->example(i, x.as<int32_t>(), target.as<int32_t>());
    const Tensor y = trainer.learner().predict(x);
    REQUIRE(y.shape() == Shape{1, 6, 26});
    for (int64_t t = 0; t < 6; ++t) {
      const int32_t id = target.as<int32_t>()[t];
      if (id == kIgnoredClass) continue;
      double sum = 0;
      for (int64_t c = 0; c < 26; ++c) sum += std::exp(static_cast<double>(y.as<float>()[t * 26 + c]));
      total += std::log(sum) - static_cast<double>(y.as<float>()[t * 26 + id]);
      ++counted;
    }
  }
  CHECK(counted == test - 1);
  CHECK(std::fabs(outcome.evaluation->loss - total / static_cast<double>(counted)) < 1e-5);
  const double bits = *value_of(outcome.evaluation->metrics, "bits_per_byte");
  CHECK(std::fabs(bits - outcome.evaluation->loss / std::log(2.0)) < 1e-12);
}

TEST_CASE("An epoch of random windows has as many as fit without overlap") {
  const TokenFolder file;
  const auto chars = static_cast<int64_t>(std::string(kWords).size());
  const auto train = static_cast<int64_t>(static_cast<double>(chars) * 0.9);
  for (const char* order : {"random", "shuffled"}) {
    const Trainer trainer(file.config({concat("data.train.order=", order), "train.stop=2 epochs"}));
    CHECK(trainer.total_microbatches() == 2 * (((train - 1) / 6 + 3) / 4));
  }
}

TEST_CASE("Microbatches whose positions count unequally are, in a window, the step of one batch") {
  const KeepModes keep;
  const TokenFolder file;
  std::vector<double> losses;
  // 32 windows in order, of which the last is shorter.
  for (const char* micro : {"batch.micro=4", "batch.micro=2", "batch.micro=1"}) {
    const RunConfig config = file.config({micro, "data.train.order=sequential", "train.stop=16 steps", "~quant.weights",
                                          "data.train.test_fraction=0.15", "data.test.test_fraction=0.15"});
    losses.push_back(run_all(config).evaluation->loss);
  }
  CHECK(std::fabs(losses[0] - losses[1]) < 1e-4);
  CHECK(std::fabs(losses[0] - losses[2]) < 1e-4);
}

TEST_CASE("A microbatch without a position that counts adds nothing to its window, and a window of such is skipped") {
  const auto learner_of = [](int64_t accumulate) {
    ModelSpec spec;
    spec.input.sample = {2, 3};
    spec.layers = {{.kind = "linear", .attributes = {{"out", 4}}}};
    auto learner = std::make_unique<Learner>(
        make_model(spec), find_loss("softmax_cross_entropy"), OptimizerSpec{.name = "adam"},
        RequantPolicy{accumulate, accumulate}, [](int64_t) { return 0.1f; }, 3);
    learner->plan({.input = spec.input, .outputs = 4, .train_samples = 2, .eval_samples = 2});
    return learner;
  };
  const auto classes = [](const std::vector<double>& c) { return Tensor::from_elements({2, 2}, dtypes::int32, c); };
  const Tensor x = random_tensor({2, 2, 3}, dtypes::fp32, 1), other = random_tensor({2, 2, 3}, dtypes::fp32, 2);
  const Tensor some = classes({1, -100, 3, 0}), none = classes({-100, -100, -100, -100});
  const auto one = learner_of(1), two = learner_of(2);
  CHECK(one->microbatch(x, some).stepped);
  for (const bool first : {true, false}) {
    const auto learner = learner_of(2);
    if (first) CHECK(learner->microbatch(other, none).loss == 0);
    CHECK(learner->microbatch(x, some).counted == 3);
    if (!first) CHECK(learner->microbatch(other, none).counted == 0);
    for (size_t i = 0; i < 2; ++i)
      CHECK(learner->model().parameters()[i]->value().elements() == one->model().parameters()[i]->value().elements());
  }
  const std::vector<double> before = two->model().parameters()[0]->value().elements();
  two->microbatch(x, none);
  CHECK(two->microbatch(other, none).skipped);
  CHECK(two->state().step == 0);
  two->microbatch(x, none);
  two->flush();  // nothing counts: nothing is updated
  CHECK(two->model().parameters()[0]->value().elements() == before);
  CHECK(two->usable());
  CHECK(two->evaluate(x, none).counted == 0);
}

TEST_CASE("Two files of tokens are read whole, with the characters of the first") {
  const KeepModes keep;
  const TokenFolder file;
  std::ofstream(file.folder().file("b.txt")) << "not a question";
  const RunConfig config = file.config({"data.test.file=b.txt"});
  const auto train = open_dataset(config, config.data.train), test = open_dataset(config, *config.data.test);
  CHECK(train->vocabulary() == test->vocabulary());
  CHECK(train->size() == static_cast<int64_t>(std::string(kWords).size()) - 6);
  int32_t x[6], target[6];
  test->example(0, x, target);
  CHECK(test->tokenizer()->decode(std::vector<int32_t>(x, x + 6)) == "not a ");
  std::ofstream(file.folder().file("b.txt")) << "Not";
  CHECK(contains(error_of([&] { open_dataset(config, *config.data.test); }), "character 'N' does not occur"));
}

TEST_CASE("Keys of tokens reach the library, and read back") {
  const TokenFolder file;
  const RunConfig c = file.config();
  CHECK(c.data.tokenizer == "chars");
  CHECK(c.data.train.keys.text("order") == "random");
  CHECK_FALSE(c.data.test->keys.contains("order"));
  CHECK((parse_config(to_yaml(c), "r.yaml") == c));
  const RunConfig stored = file.config({"~data.tokenizer", "data.train.stored=uint16", "data.train.vocabulary=26",
                                        "data.test.stored=shard", "data.test.vocabulary=26"});
  CHECK(stored.data.test->keys.text("stored") == "shard");
  CHECK((parse_config(to_yaml(stored), "r.yaml") == stored));
}

TEST_CASE("What does not fit tokens is found at its key") {
  CHECK(places(kSmallTokens) == "");
  CHECK(contains(text_error(with("  tokenizer: chars\n", "")),
                 "5:19: error: data.train of format tokens reads a text: set data.tokenizer (chars, bytes or a file)"));
  CHECK(contains(text_error(with("tokenizer: chars", "tokenizer: char")), "did you mean 'chars'?"));
  CHECK(contains(text_error(with("order: random", "order: any")), "expected one of random, shuffled, sequential"));
  CHECK(
      contains(text_error(with("order: random", "stored: uint16")),
               "data.train.stored: uint16: a file of ids does not say how many there are: set data.train.vocabulary"));
  CHECK(contains(text_error(with("order: random", "targets: each")), "data.train.targets requires data.train.format"));
  CHECK(contains(text_error(with("context: 6}", "context: 5}")),
                 "data.test.context (5) must be data.train.context (6): samples are of one length"));
  CHECK(contains(text_error(with("order: random", "test_fraction: 0.5")),
                 "it splits the file once, so that the parts do not overlap"));
  CHECK(contains(text_error(with("model:", "  affine: [2, -1]\nmodel:")), "data.affine is for pixels"));
  std::string text = with("train: {format: tokens, file: a.txt", "train: {format: text, file: a.txt");
  text.replace(text.find("order: random"), 13, "targets: each");
  text.replace(text.find("test: {format: tokens"), 21, "test: {format: text, targets: each");
  CHECK(contains(text_error(text), "data.tokenizer only applies to formats tokens and jsonl, which are not used here"));
}

TEST_CASE("Sensitivities measure a tied weight once, where it is owned") {
  const KeepModes keep;
  const TokenFolder file;
  const RunConfig config = file.config({"train.stop=8 steps"});
  Trainer trainer(config);
  trainer.run("");
  const auto data = open_dataset(config, config.data.train);
  const std::vector<WeightChoice> choices{{"int2wo"}};
  const std::vector<SampleBatch> samples = first_samples(*data, 8, 4, 1);
  const Sensitivity s = measure_sensitivity(trainer.learner(), samples, choices, samples);
  REQUIRE(s.layers.size() == 3);  // the table, and the two layers of the residual; the head has no weight of its own
  CHECK(s.layers[0].layer == "layers.0");
  CHECK(s.layers[0].kind == "embedding");
  CHECK(s.layers[2].layer == "layers.1.body.3");
  for (const LayerSensitivity& layer : s.layers) CHECK(layer.effects[0].noise > 0);
}

TEST_CASE("A table gets its size from the data, and may have more rows than ids") {
  const KeepModes keep;
  const TokenFolder file;
  const auto rows = [&](const std::vector<std::string>& overrides) {
    const RunConfig config = file.config(overrides);
    const auto data = open_dataset(config, config.data.train);
    const auto learner = build_learner(config, *data);
    return learner->model().parameters().at(0)->shape().rows();
  };
  CHECK(rows({}) == 26);
  CHECK(rows({"model.layers.0.embedding={dim: 8, flat: false}"}) == 26);
  // The state of a run is the same, whoever counted.
  std::string hashes[2];
  for (const bool counted : {false, true}) {
    Trainer trainer(file.config(counted ? std::vector<std::string>{"model.layers.0.embedding={dim: 8, flat: false}"}
                                        : std::vector<std::string>{}));
    trainer.run("");
    hashes[counted] = state_hash(trainer.learner(), trainer.counters());
  }
  CHECK(hashes[0] == hashes[1]);
  // Padded: scores of classes that never occur.
  CHECK(rows({"model.layers.0.embedding.num=32"}) == 32);
  Trainer trainer(file.config({"model.layers.0.embedding.num=32", "train.stop=4 steps"}));
  trainer.run("");
  CHECK(std::isfinite(trainer.evaluate_held_out().loss));
  CHECK(contains(error_of([&] { rows({"model.layers.0.embedding.num=25"}); }), "num: got 25, expected at least 26"));
}
