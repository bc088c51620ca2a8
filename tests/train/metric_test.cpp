// Metrics as functions of sums, the metric that picks the best model, and runs whose targets are values, several
// labels, or a class a position.
#include "bitgrad/task/metric.h"

#include <cmath>
#include <fstream>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/vector_files.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Keys = std::vector<std::string>;

RunConfig shipped(const std::string& name, const std::string& root, Keys keys = {}) {
  keys.insert(keys.begin(), "data.root=" + root);
  return load_config(concat(source_path(), "/configs/", name, ".yaml"), keys);
}

Json json_of(const std::string& path) { return Json::parse(text_of(path)); }

std::vector<std::string> names_of(const MetricValues& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  return names;
}

class Vectors {
 public:
  Vectors() { write_vectors(folder_.path(), 200, 90); }
  const std::string& root() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TempDir folder_;
};

class Text {
 public:
  Text() {
    std::filesystem::create_directories(folder_.path() + "/text");
    std::ofstream out(folder_.path() + "/text/tinyshakespeare.txt");
    for (char c = '0'; c < '0' + 65; ++c) out << c;  // the vocabulary
    for (int i = 0; i < 60; ++i) out << "TO;BE;OR;NOT;TO;BE:LINE:" << i * i % 97;
  }
  const std::string& root() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TempDir folder_;
};
const Keys kPositions = {"train.stop=30 steps", "train.eval.every=10 steps", "schedule.warmup=1 steps",
                         "batch.global=20",     "data.train.context=5",      "data.test.context=5",
                         "train.eval.batch=33"};

}  // namespace

TEST_CASE("Metrics are their formulas over the sums of all batches") {
  StepResult sums;
  StepResult one;
  one.loss = 30;
  one.correct = 7;
  one.among_top5 = 9;
  one.samples = 2;
  one.counted = 12;
  one.squared_error = 5;
  add_sums(one, sums);
  one.loss = 6;
  one.counted = 4;
  add_sums(one, sums);
  CHECK(sums.samples == 4);
  const MetricTask text{{.shape = {8}, .classes = 65, .bytes_per_target = 2}, "softmax_cross_entropy", 65};
  const MetricValues of_text = metric_values(text, sums);
  CHECK(names_of(of_text) == Keys{"accuracy", "top5_accuracy", "loss", "perplexity", "bits_per_byte"});
  CHECK(value_of(of_text, "accuracy") == 100.0 * 14 / 16);
  CHECK(value_of(of_text, "top5_accuracy") == 100.0 * 18 / 16);
  CHECK(value_of(of_text, "loss") == 2.25);
  CHECK(std::fabs(*value_of(of_text, "perplexity") - std::exp(2.25)) < 1e-12);
  CHECK(std::fabs(*value_of(of_text, "bits_per_byte") - 2.25 / std::log(2.0) / 2) < 1e-12);
  CHECK_FALSE(value_of(of_text, "mean_squared_error"));
  // Perplexity is of language models: the classes are the ids that are read.
  const MetricTask pictures{{.shape = {}, .classes = 65}, "softmax_cross_entropy"};
  CHECK(names_of(metric_values(pictures, sums)) == Keys{"accuracy", "top5_accuracy", "loss"});
  const MetricTask tags{{.shape = {8}, .classes = 9}, "softmax_cross_entropy", 65};
  CHECK(names_of(metric_values(tags, sums)) == Keys{"accuracy", "top5_accuracy", "loss"});
  const MetricTask few{{.shape = {}, .classes = 5}, "squared_hinge"};
  CHECK(names_of(metric_values(few, sums)) == Keys{"accuracy", "loss"});
  const MetricTask regression{{.shape = {2}, .classes = 0}, "mean_squared_error"};
  const MetricValues of_values = metric_values(regression, sums);
  CHECK(names_of(of_values) == Keys{"loss", "mean_squared_error"});
  CHECK(value_of(of_values, "mean_squared_error") == 10.0 / 16);
  const MetricTask labels{{.shape = {5}, .classes = 0}, "sigmoid_cross_entropy"};
  CHECK(names_of(metric_values(labels, sums)) == Keys{"loss"});
  CHECK(find_metric("accuracy")->more_is_better);
  CHECK_FALSE(find_metric("perplexity")->more_is_better);
  CHECK(find_metric("acuracy") == nullptr);
}

TEST_CASE("train.best is a name or a map, is written back, and is refused where it is empty") {
  const auto best = [](Keys keys) { return small_config(keys).train.best; };
  CHECK(best({}) == BestConfig{});
  CHECK(best({"train.best=loss"}) == BestConfig{.metric = "loss"});
  CHECK(best({"train.best={metric: top5_accuracy, mode: min}"}) ==
        BestConfig{.metric = "top5_accuracy", .mode = "min"});
  const RunConfig config = small_config({"train.best={metric: loss, mode: max}", "data.train.limit=20"});
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  CHECK(contains(to_yaml(config), "  best: {metric: loss, mode: max}\n"));
  CHECK(contains(error_of([] { small_config({"train.best=acuracy"}); }), "did you mean 'accuracy'?"));
  CHECK(
      contains(error_of([] { small_config({"train.best={mode: max}"}); }), "missing required key 'train.best.metric'"));
  CHECK(contains(error_of([] {
                   small_config({"train.best=loss", "~data.test"});
                 }),
                 "train.best needs data.test or data.valid, neither of which is set: the best model"));
  const std::string wrong = error_of([] { Trainer(small_config({"train.best=bits_per_byte"})); });
  CHECK(
      contains(wrong,
               "train.best: bits_per_byte does not support loss squared_hinge on one class per sample. Metrics of this "
               "run: accuracy, top5_accuracy, loss"));
  CHECK(contains(wrong, "command line, argument 1"));
}

TEST_CASE("The metric of train.best picks the best model, and summary and metrics name it") {
  const KeepModes keep;
  TempDir temp;
  for (const std::string mode : {"min", "max"}) {
    const RunConfig config = small_config({"train.best={metric: loss, mode: " + mode + "}", "data.train.limit=40"});
    const std::string folder = create_run_folder(config, temp.file(mode));
    std::vector<EvalEvent> events;
    TrainHooks hooks;
    hooks.on_eval = [&](const EvalEvent& e) { events.push_back(e); };
    Trainer trainer(config);
    CHECK(trainer.total_microbatches() == 12);
    const TrainOutcome outcome = trainer.run(folder, hooks);
    REQUIRE(events.size() == 3);
    double best = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      const bool better = i == 0 || (mode == "max" ? events[i].loss > best : events[i].loss < best);
      CHECK(events[i].best == better);
      if (better) best = events[i].loss;
      CHECK(events[i].metric == "loss");
      CHECK(events[i].value == events[i].loss);
    }
    CHECK(trainer.best_value() == best);
    const Json summary = json_of(folder + "/summary.json");
    CHECK(summary.at("metric") == "loss");
    CHECK(summary.at("best_value") == best);
    CHECK(summary.at("last_value") == events.back().loss);
    CHECK(summary.at("last_accuracy") == events.back().accuracy);
    const CheckpointHeader header = read_checkpoint_header(folder + "/last.safetensors");
    CHECK(header.counters.metric == "loss");
    CHECK(header.counters.best_value == best);
    CHECK(contains(text_of(folder + "/metrics.jsonl"), "\"top5_accuracy\":"));
    CHECK(outcome.metric == "loss");
  }
  const RunConfig plain = small_config({});
  const std::string folder = create_run_folder(plain, temp.file("plain"));
  const TrainOutcome outcome = run_all(plain, folder);
  const Json summary = json_of(folder + "/summary.json");
  CHECK(summary.at("metric") == "accuracy");
  CHECK(summary.at("best_value") == summary.at("best_accuracy"));
  CHECK(summary.at("last_value") == summary.at("last_accuracy"));
  CHECK(outcome.counters.metric.empty());
}

TEST_CASE("A regression trains on idx files of floats, and its best model has the least mean squared error") {
  const KeepModes keep;
  const Vectors data;
  const RunConfig config = shipped("vectors_mlp_int8_regression", data.root(), {"batch.micro=16"});
  const std::string folder = create_run_folder(config, data.file("run"));
  Trainer trainer(config);
  const Evaluation before = trainer.evaluate_held_out();
  CHECK(before.accuracy == -1);
  CHECK(before.samples == 90);
  CHECK(names_of(before.metrics) == Keys{"loss", "mean_squared_error"});
  const TrainOutcome outcome = trainer.run(folder);
  REQUIRE(outcome.evaluation.has_value());
  CHECK(outcome.evaluation->loss < 0.3 * before.loss);
  CHECK(std::fabs(outcome.evaluation->loss - *value_of(outcome.evaluation->metrics, "mean_squared_error")) < 1e-6);
  const Json summary = json_of(folder + "/summary.json");
  CHECK(summary.at("metric") == "mean_squared_error");
  CHECK(summary.at("best_accuracy").is_null());
  CHECK(summary.at("best_value").get<double>() <= summary.at("last_value").get<double>());
  const RunConfig short_run =
      shipped("vectors_mlp_int8_regression", data.root(), {"batch.micro=16", "train.stop=3 epochs"});
  const std::string uninterrupted = create_run_folder(short_run, data.file("uninterrupted")),
                    cut = create_run_folder(short_run, data.file("cut"));
  run_all(short_run, uninterrupted);
  run_part(short_run, cut, 17);
  CHECK(resume_run(cut).state_hash == json_of(uninterrupted + "/summary.json").at("state_hash").text());
  CHECK(json_of(cut + "/summary.json").at("best_value") == json_of(uninterrupted + "/summary.json").at("best_value"));
}

TEST_CASE("Several labels a sample train with sigmoid cross-entropy") {
  const KeepModes keep;
  const Vectors data;
  Trainer trainer(shipped("vectors_mlp_int8_labels", data.root()));
  const Evaluation before = trainer.evaluate_held_out();
  CHECK(names_of(before.metrics) == Keys{"loss"});
  const TrainOutcome outcome = trainer.run("");
  CHECK(outcome.metric == "loss");
  CHECK(outcome.evaluation->loss < 0.6 * before.loss);
  CHECK(trainer.best_value() <= outcome.evaluation->loss);
}

TEST_CASE("A table that is input and output of a text model is one parameter: trained, saved and converted once") {
  const KeepModes keep;
  const Text text;
  Keys keys = kPositions;
  const RunConfig config = shipped("shakespeare_mlp_tied_int8", text.root(), keys);
  Trainer trainer(config);
  const double before = trainer.evaluate_held_out().loss;
  const TempDir temp;
  std::filesystem::create_directory(temp.file("run"));
  const TrainOutcome outcome = trainer.run(temp.file("run"));
  CHECK(outcome.metric == "bits_per_byte");
  CHECK(outcome.evaluation->loss < before);
  const std::vector<Quantizable*> slots = trainer.learner().model().quantizables();
  Parameter& table = slots.front()->weight();
  CHECK(&slots.back()->weight() == &table);
  CHECK(slots.back()->weight_owner() == slots.front());
  CHECK(table.path() == "layers.0.weight");
  int64_t tables = 0;
  for (const auto& [name, shape] : file_form(temp.file("run") + "/last.safetensors").parameters)
    tables += shape == Shape{65, 64};
  CHECK(tables == 1);
  const auto opened = load_evaluator(temp.file("run") + "/last.safetensors", trainer.learner().loss());
  const auto data = open_dataset(config, *config.data.test);
  const std::vector<SampleBatch> batch = first_samples(*data, 9, 9, 1);
  const Tensor a = opened->predict(batch[0].x), b = trainer.learner().predict(batch[0].x);
  CHECK(a.shape() == b.shape());
  CHECK(std::equal(a.as<float>(), a.as<float>() + a.numel(), b.as<float>()));
}

TEST_CASE("The next byte at each position trains, and bits per byte pick the best model") {
  const KeepModes keep;
  const Text text;
  Keys keys = kPositions;
  const RunConfig config = shipped("shakespeare_mlp_positions_int8", text.root(), keys);
  Trainer trainer(config);
  const Evaluation before = trainer.evaluate_held_out();
  const TrainOutcome outcome = trainer.run("");
  const Evaluation& e = *outcome.evaluation;
  CHECK(names_of(e.metrics) == Keys{"accuracy", "top5_accuracy", "loss", "perplexity", "bits_per_byte"});
  CHECK(e.loss < before.loss);
  CHECK(std::fabs(*value_of(e.metrics, "bits_per_byte") - e.loss / std::log(2.0)) < 1e-12);
  CHECK(outcome.metric == "bits_per_byte");
  // The loss over positions by hand: logits of each batch, in double.
  const auto data = open_dataset(config, *config.data.test);
  double total = 0;
  int64_t positions = 0, correct = 0;
  for (const SampleBatch& b : first_samples(*data, data->size(), 7, 1)) {
    const Tensor y = trainer.learner().predict(b.x);
    REQUIRE(y.shape() == Shape{b.x.rows(), 5, 65});
    for (int64_t r = 0; r < y.rows(); ++r, ++positions) {
      const float* row = y.as<float>() + r * 65;
      double sum = 0;
      for (int64_t c = 0; c < 65; ++c) sum += std::exp(static_cast<double>(row[c]));
      const int32_t label = b.target.as<int32_t>()[r];
      total += std::log(sum) - static_cast<double>(row[label]);
      correct += std::max_element(row, row + 65) - row == label;
    }
  }
  CHECK(std::fabs(e.loss - total / static_cast<double>(positions)) < 1e-5);
  CHECK(e.accuracy == 100.0 * static_cast<double>(correct) / static_cast<double>(positions));
  CHECK(e.samples * 5 == positions);
}

TEST_CASE("Positions count in a window: two microbatches are the step of one") {
  const KeepModes keep;
  const Text text;
  std::vector<double> losses;
  for (const char* micro : {"batch.micro=20", "batch.micro=10"}) {
    Keys keys = kPositions;
    keys.insert(keys.end(), {micro, "quant.weights.dtype=fp32", "~quant.weights.scheme", "~quant.weights.granularity",
                             "model.layers=[{embedding: {num: 65, dim: 8, flat: false}}, {linear: {out: 65}}]"});
    losses.push_back(run_all(shipped("shakespeare_mlp_positions_int8", text.root(), keys)).evaluation->loss);
  }
  CHECK(std::fabs(losses[0] - losses[1]) < 1e-4);
}

TEST_CASE("Transforms of data.train change its samples alone") {
  const KeepModes keep;
  const Vectors data;
  const Keys noisy = {"data.train.transforms=[{noise: {sd: 0.1}}]", "train.stop=2 epochs"};
  const RunConfig config = shipped("vectors_mlp_int8_regression", data.root(), noisy);
  CHECK((config.data.train.transforms == std::vector<TransformConfig>{{"noise", {{"sd", 0.1}}}}));
  CHECK(contains(to_yaml(config), "transforms: [{noise: {sd: 0.1}}]"));
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  const RunConfig plain = shipped("vectors_mlp_int8_regression", data.root(), {"train.stop=2 epochs"});
  CHECK(run_all(plain).state_hash != run_all(config).state_hash);
  CHECK(Trainer(plain).evaluate_held_out().loss == Trainer(config).evaluate_held_out().loss);
  const auto refusal = [&](const std::string& key) {
    return error_of([&] { shipped("vectors_mlp_int8_regression", data.root(), {key}); });
  };
  CHECK(contains(refusal("data.test.transforms=[{noise: {sd: 0.1}}]"), "transforms apply to training samples only"));
  CHECK(contains(refusal("data.train.transforms=[{noise: {sd: -1}}]"), "-1 is out of range (0, 1e30]"));
  CHECK(contains(refusal("data.train.transforms=[{noice: {sd: 1}}]"), "Did you mean 'noise'?"));
  CHECK(contains(refusal("data.train.transforms=[{noise: {}}]"), "missing required key"));
  CHECK(contains(refusal("data.train.transforms=[{}]"), "a transform is a map of one key, its name, got 0"));
  const Text text;
  CHECK(contains(error_of([&] {
                   shipped("shakespeare_mlp_positions_int8", text.root(), {"data.train.transforms=[{noise: {sd: 1}}]"});
                 }),
                 "data.train.transforms need values, data.train of format text has ids"));
}

TEST_CASE("Models, losses and data that do not fit are refused before anything trains") {
  const KeepModes keep;
  const Vectors data;
  const Text text;
  const auto refusal = [&](const char* name, const std::string& root, Keys keys) {
    return error_of([&] { Trainer(shipped(name, root, keys)); });
  };
  CHECK(contains(refusal("vectors_mlp_int8_regression", data.root(), {"loss=squared_hinge", "~train.best"}),
                 "[loss] squared_hinge expects classes as targets, data.train ("));
  CHECK(contains(
      refusal("vectors_mlp_int8_regression", data.root(), {"loss=squared_hinge", "~train.best"}),
      "has values [2] per sample. Losses for these: softmax_cross_entropy, mean_squared_error, sigmoid_cross_entropy"));
  CHECK(contains(refusal("vectors_mlp_int8_regression", data.root(), {"model.layers.4.linear.out=3"}),
                 "the last layer returns 3 values, the data has 2 values per sample"));
  CHECK(contains(refusal("vectors_mlp_int8_regression", data.root(), {"data.test.targets=vectors/test-labels.idx"}),
                 "has targets of values [2] per sample, data.test ("));
  Keys flat = kPositions;
  flat.insert(flat.end(), {"model.layers.0.embedding.flat=true", "data.train.file=text/tinyshakespeare.txt"});
  CHECK(contains(refusal("shakespeare_mlp_positions_int8", text.root(), flat),
                 "the model returns [65] per sample, the targets are a class for each of [5]. For one row of scores "
                 "per position keep"));
  Keys last = kPositions;
  last.insert(last.end(), {"data.train.targets=last", "data.test.targets=last"});
  CHECK(contains(
      refusal("shakespeare_mlp_positions_int8", text.root(), last),
      "the model returns [5,65] per sample, the targets are one class for each sample. For one row of scores per "
      "sample make vectors of its axes: model.flat: true, embedding: {flat: true}"));
  CHECK(contains(error_of([&] { shipped("shakespeare_mlp_positions_int8", text.root(), {"data.test.targets=last"}); }),
                 "data.test.targets (last) must be data.train.targets (each)"));
  CHECK(contains(error_of([&] { shipped("shakespeare_mlp_positions_int8", text.root(), {"data.train.targets=all"}); }),
                 "data.train.targets of a text: got 'all', expected last"));
  CHECK(contains(error_of([&] { shipped("vectors_mlp_int8_labels", data.root(), {"data.train.labels=x"}); }),
                 "data.train has both labels and targets"));
  CHECK(contains(error_of([&] { shipped("vectors_mlp_int8_labels", data.root(), {"~data.train.targets"}); }),
                 "missing required key 'data.train.labels'"));
}
