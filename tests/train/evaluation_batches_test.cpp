// An evaluation is a function of its samples: loss and metrics are those of one batch, however the samples are cut into
// batches, the last of which may be smaller, and whatever the number of threads.
#include <cmath>

#include "bitgrad/data/samples.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kN = 10, kIn = 4;

struct Task {
  std::string loss;
  int64_t outputs;
  bool classes;
  std::vector<std::string> followed;
};
const std::vector<Task> kTasks = {{"softmax_cross_entropy", 3, true, {"f1", "recall", "balanced_accuracy"}},
                                  {"softmax_cross_entropy", 2, true, {"f1", "recall", "balanced_accuracy", "auc"}},
                                  {"squared_hinge", 3, true, {"f1"}},
                                  {"mean_squared_error", 2, false, {"mean_absolute_error", "r2"}},
                                  {"sigmoid_cross_entropy", 2, false, {"f1", "recall", "auc"}}};

struct Arrays {
  Tensor x = random_tensor({kN, kIn}, dtypes::fp32, 5, -2, 2);
  Tensor y;
  explicit Arrays(const Task& task) {
    std::vector<double> t;
    for (int64_t i = 0; i < kN * (task.classes ? 1 : task.outputs); ++i)
      t.push_back(task.classes                        ? static_cast<double>(i * i % task.outputs)
                  : task.loss == "mean_squared_error" ? static_cast<double>(i % 7) - 2.5
                                                      : static_cast<double>(i % 3 == 0));
    y = Tensor::from_elements(task.classes ? Shape{kN} : Shape{kN, task.outputs},
                              task.classes ? dtypes::int32 : dtypes::fp32, t);
  }
  std::unique_ptr<Dataset> data(const Task& task) const {
    MemoryDatasetSpec spec;
    spec.samples = {"x", StoredAs::kFloat, Shape{kIn}, kN, x.data()};
    spec.targets = {"y", task.classes ? StoredAs::kInt32 : StoredAs::kFloat,
                    task.classes ? Shape{} : Shape{task.outputs}, kN, y.data()};
    spec.classes = task.classes ? task.outputs : 0;
    return make_memory_dataset(spec);
  }
};

std::unique_ptr<Learner> learner_of(const Task& task) {
  ModelSpec spec;
  spec.input.sample = {kIn};
  spec.layers = {{.kind = "linear", .attributes = {{"out", task.outputs}}}};
  auto learner = std::make_unique<Learner>(
      make_model(spec), find_loss(task.loss), OptimizerSpec{.name = "sgd"}, RequantPolicy{},
      [](int64_t) { return 0.1f; }, 7);
  learner->plan({.input = spec.input, .outputs = task.outputs, .train_samples = 2, .eval_samples = 3});
  MetricKeys keys;
  for (const std::string& name : task.followed) keys[name] = {};
  learner->train_state().metric_keys = keys;
  return learner;
}

// The mean loss in double, from the outputs of the model.
double loss_in_double(const Task& task, const Tensor& outputs, const Tensor& target) {
  double sum = 0;
  const std::vector<double> z = outputs.elements(), t = target.elements();
  const auto cols = static_cast<size_t>(task.outputs);
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t r = i / cols, c = i % cols;
    if (task.loss == "mean_squared_error") sum += (z[i] - t[i]) * (z[i] - t[i]);
    if (task.loss == "sigmoid_cross_entropy") sum += std::log1p(std::exp(z[i])) - t[i] * z[i];
    if (task.loss == "squared_hinge") {
      const double h = std::fmax(0, 1 - (t[r] == static_cast<double>(c) ? z[i] : -z[i]));
      sum += h * h / static_cast<double>(cols);
    }
    if (task.loss == "softmax_cross_entropy" && t[r] == static_cast<double>(c)) {
      double total = 0;
      for (size_t k = 0; k < cols; ++k) total += std::exp(z[r * cols + k]);
      sum += std::log(total) - z[i];
    }
  }
  return sum / static_cast<double>(t.size());
}

}  // namespace

TEST_CASE("Loss and metrics are those of one batch, for any batches and threads") {
  const KeepModes keep;
  for (const Task& task : kTasks) {
    const Arrays arrays(task);
    const auto data = arrays.data(task);
    const auto learner = learner_of(task);
    const Evaluation whole = evaluate(*learner, *data, kN);
    CHECK(whole.loss == Approx(loss_in_double(task, learner->predict(arrays.x), arrays.y)).epsilon(1e-6));
    for (const std::string& name : task.followed) CHECK(value_of(whole.metrics, name).has_value());
    for (const int64_t batch : {1, 3, 4, 9})  // last batches of 1, 1, 2 and 1
      for (const int threads : {1, 2, 7}) {
        INFO(task.loss << ", batches of " << batch << ", " << threads << " threads");
        set_num_threads(threads);
        const Evaluation e = evaluate(*learner, *data, batch);
        CHECK(e.loss == Approx(whole.loss).epsilon(1e-6));
        REQUIRE(e.metrics.size() == whole.metrics.size());
        for (size_t m = 0; m < e.metrics.size(); ++m) {
          INFO(e.metrics[m].first);
          CHECK(e.metrics[m].second == Approx(whole.metrics[m].second).epsilon(1e-6));
        }
      }
  }
}

namespace {

Tensor floats(const Shape& shape, const std::vector<double>& x) {
  return Tensor::from_elements(shape, dtypes::fp32, x);
}
Tensor labels(const std::vector<double>& x) { return Tensor::from_elements({std::ssize(x)}, dtypes::int32, x); }
// Outputs whose largest score is that of the class told.
Tensor told(const std::vector<int>& classes, int64_t of) {
  std::vector<double> z(classes.size() * static_cast<size_t>(of), 0.0);
  for (size_t i = 0; i < classes.size(); ++i) z[i * static_cast<size_t>(of) + static_cast<size_t>(classes[i])] = 1;
  return floats({std::ssize(classes), of}, z);
}

struct Followed {
  double value = 0;
  std::string why = {};
};
Followed followed(const std::string& name, const MetricTask& task, const Tensor& outputs, const Tensor& target,
                  const Attributes& keys = {}) {
  const Metric& metric = *find_metric(name);
  REQUIRE(metric.fits(task));
  const auto follower = metric.follow(task, completed(name, metric.keys, keys));
  follower->add(outputs, target);
  Followed out;
  out.value = follower->value(out.why);
  return out;
}

const MetricTask kThree{{.shape = {}, .classes = 3}, "softmax_cross_entropy"};
const MetricTask kTwo{{.shape = {}, .classes = 2}, "softmax_cross_entropy"};
const MetricTask kValues{{.shape = {1}, .classes = 0}, "mean_squared_error"};
const MetricTask kLabels{{.shape = {2}, .classes = 0}, "sigmoid_cross_entropy"};

}  // namespace

TEST_CASE("Followed metrics have the values of scikit-learn's examples") {
  const Tensor y = labels({0, 1, 2, 0, 1, 2}), z = told({0, 2, 1, 0, 0, 1}, 3);
  CHECK(followed("f1", kThree, z, y).value == Approx(0.8 / 3));        // f1_score(average="macro")
  CHECK(followed("recall", kThree, z, y, {{"class", 0}}).value == 1);  // recall_score(average=None)[0]
  CHECK(followed("recall", kThree, z, y).value == 0);
  const Tensor y2 = labels({0, 1, 0, 0, 1, 0}), z2 = told({0, 1, 0, 0, 0, 1}, 2);
  CHECK(followed("balanced_accuracy", kTwo, z2, y2).value == Approx(0.625));
  CHECK(followed("f1", kTwo, z2, y2, {{"average", "binary"}}).value == Approx(0.5));
  CHECK(followed("f1", kTwo, z2, y2, {{"average", "binary"}, {"positive", 0}}).value == Approx(0.75));
  const Tensor scores = floats({4, 2}, {0, 0.1, 0, 0.4, 0, 0.35, 0, 0.8});
  CHECK(followed("auc", kTwo, scores, labels({0, 0, 1, 1})).value == Approx(0.75));
  CHECK(followed("auc", kTwo, floats({3, 2}, {0, 1, 0, 1, 0, 1}), labels({0, 1, 1})).value == 0.5);  // ties
  const Tensor t = floats({4, 1}, {3, -0.5, 2, 7}), v = floats({4, 1}, {2.5, 0, 2, 8});
  CHECK(followed("mean_absolute_error", kValues, v, t).value == Approx(0.5));
  CHECK(followed("r2", kValues, v, t).value == Approx(0.9486081370449679));
  const Tensor pairs = floats({3, 2}, {0.5, 1, -1, 1, 7, -6}), told_pairs = floats({3, 2}, {0, 2, -1, 2, 8, -5});
  MetricTask two_values = kValues;
  two_values.target.shape = {2};
  CHECK(followed("r2", two_values, told_pairs, pairs).value == Approx(0.9368005266622779));
  // Labels [[0,1],[1,1],[1,0]] told as [[0,1],[1,0],[1,1]].
  const Tensor many = floats({3, 2}, {0, 1, 1, 1, 1, 0}), told_many = floats({3, 2}, {-1, 1, 1, -1, 1, 1});
  CHECK(followed("f1", kLabels, told_many, many).value == Approx((1 + 0.5) / 2));
  CHECK(followed("auc", kLabels, told_many, many).value == Approx((1 + 0.25) / 2));
}

TEST_CASE("Positions that do not count are in no metric, and a large mean of values does not cancel") {
  MetricTask positions = kThree;
  positions.target.shape = {2};
  const Tensor z = told({0, 2, 1, 0}, 3).reshape({2, 2, 3});
  const Tensor y = Tensor::from_elements({2, 2}, dtypes::int32, std::vector<double>{0, kIgnoredClass, 1, 1});
  CHECK(followed("recall", positions, z, y, {{"class", 1}}).value == 0.5);
  CHECK(followed("balanced_accuracy", positions, z, y).value == 0.75);
  const Tensor t = floats({3, 1}, {1e6, 1e6 + 1, 1e6 + 2}), v = floats({3, 1}, {1e6, 1e6 + 1, 1e6 + 1});
  CHECK(followed("r2", kValues, v, t).value == Approx(0.5));
}

TEST_CASE("Where a metric is not defined, or excludes classes, it is reported") {
  const Tensor z = told({0, 1, 0}, 3), y = labels({0, 1, 1});
  CHECK(contains(followed("balanced_accuracy", kThree, z, y).why, "no target of class 2: excluded"));
  CHECK(followed("balanced_accuracy", kThree, z, y).value == 0.75);
  CHECK(contains(followed("f1", kThree, z, y).why, "no target of class 2"));
  const Followed absent = followed("recall", kThree, z, y, {{"class", 2}});
  CHECK((std::isnan(absent.value) && contains(absent.why, "no target is class 2")));
  const Followed one = followed("auc", kTwo, told({0, 1}, 2), labels({1, 1}));
  CHECK((std::isnan(one.value) && contains(one.why, "all targets are of one class")));
  const Followed flat = followed("r2", kValues, floats({2, 1}, {1, 2}), floats({2, 1}, {3, 3}));
  CHECK((std::isnan(flat.value) && contains(flat.why, "all 2 targets are equal")));
  const Followed none = followed("f1", kTwo, told({0, 0}, 2), labels({0, 0}), {{"average", "binary"}});
  CHECK((none.value == 0 && contains(none.why, "class 1 is neither a target nor predicted: counted as 0")));
  CHECK(contains(error_of([&] {
                   followed("f1", kThree, z, y, {{"average", "binary"}});
                 }),
                 "binary is for two classes"));
  CHECK(contains(error_of([&] {
                   followed("recall", kTwo, told({0}, 2), labels({0}), {{"class", 2}});
                 }),
                 "class: got 2, the targets have 2 classes"));
}

namespace {

constexpr const char* kFollowing = R"yaml(version: 1
run: {seed: 1}
data: {train: {format: digits, size: 40}, test: {format: digits, size: 25}}
model: {layers: [linear: {out: 10}]}
loss: softmax_cross_entropy
batch: {global: 10}
optim: {name: adam, lr: 0.02}
train: {stop: 3 epochs, best: balanced_accuracy, metrics: {f1: {}, recall: {class: 3}}, early_stop: {metric: f1, patience: 2}}
)yaml";

}  // namespace

TEST_CASE("A schedule does not follow a metric that the samples do not define") {
  const KeepModes keep;
  const TempDir folder;
  Trainer trainer(
      small_config({"data.test={format: digits, size: 1}", "train.metrics={recall: {class: 9}}", "train.best=loss",
                    "~train.early_stop", "schedule={name: plateau, metric: recall, factor: 0.1, patience: 1}"},
                   kFollowing));
  CHECK(
      contains(error_of([&] { trainer.run(folder.path()); }), "[schedule.metric] recall is not defined on data.test"));
}

TEST_CASE("Followed metrics choose the best model, end a run early, and are in its files") {
  const KeepModes keep;
  const TempDir folder;
  Trainer trainer(small_config({}, kFollowing));
  const TrainOutcome outcome = trainer.run(folder.path());
  CHECK(outcome.metric == "balanced_accuracy");
  CHECK(outcome.counters.best_value.has_value());
  CHECK(outcome.counters.early_stop_best.has_value());
  for (const char* name : {"\"balanced_accuracy\":", "\"f1\":", "\"recall\":"})
    CHECK(contains(text_of(folder.path() + "/metrics.jsonl"), name));
  CHECK(parse_config(to_yaml(trainer.config()), "again.yaml") == trainer.config());
  CHECK(contains(error_of([] { Trainer(small_config({"train.best=auc"}, kFollowing)); }), "auc does not support loss"));
  CHECK(contains(error_of([] { Trainer(small_config({"train.metrics={r2: {}}"}, kFollowing)); }),
                 "r2 does not support loss softmax_cross_entropy"));
}
