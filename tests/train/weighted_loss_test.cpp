// Class weights, label smoothing, probabilities as targets and pos_weight in a learner: one step of gradient descent is
// that of the formula in double over the whole window, however the window is cut into microbatches.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/json.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/task/metric.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kN = 100, kIn = 6, kOut = 3;
constexpr float kRate = 0.5f;

struct Case {
  std::string what;
  std::string loss = "softmax_cross_entropy";
  Attributes keys = {};
  bool soft = false, ignored = false;
};
const std::vector<double> kWeights{1, 49, 0.3}, kPos{5, 0.25, 1};
std::vector<Case> cases() {
  return {
      {"weights", "softmax_cross_entropy", {{"weights", kWeights}}},
      {"smoothing", "softmax_cross_entropy", {{"smoothing", 0.1}}},
      {"weights and smoothing", "softmax_cross_entropy", {{"weights", kWeights}, {"smoothing", 0.1}}},
      {"weights of positions, some ignored", "softmax_cross_entropy", {{"weights", kWeights}}, false, true},
      {"smoothing of positions, some ignored", "softmax_cross_entropy", {{"smoothing", 0.2}}, false, true},
      {"probabilities", "softmax_cross_entropy", {}, true},
      {"probabilities, weights, smoothing", "softmax_cross_entropy", {{"weights", kWeights}, {"smoothing", 0.1}}, true},
      {"pos_weight", "sigmoid_cross_entropy", {{"pos_weight", kPos}}, true}};
}

// Samples [n,6], or positions [n,2,3] of a model that reads the last axis.
struct Problem {
  Tensor x, target;
};
Problem problem_of(const Case& c) {
  Problem p;
  p.x = random_tensor(c.ignored ? Shape{kN, 2, kIn} : Shape{kN, kIn}, dtypes::fp32, 3);
  std::vector<double> t;
  for (int64_t i = 0; i < kN * (c.ignored ? 2 : 1); ++i) {
    const int64_t label = i % 50 == 7 ? 1 : i % 3 == 0 ? 2 : 0;
    if (c.soft)
      for (int64_t k = 0; k < kOut; ++k) t.push_back(k == label ? 0.75 : 0.125);
    else
      t.push_back(c.ignored && i % 4 == 1 ? kIgnoredClass : static_cast<double>(label));
  }
  const DType dtype = c.soft ? dtypes::fp32 : dtypes::int32;
  p.target = Tensor::from_elements(c.soft ? Shape{kN, kOut} : c.ignored ? Shape{kN, 2} : Shape{kN}, dtype, t);
  return p;
}

std::unique_ptr<Learner> learner_of(const Case& c, int64_t accumulate) {
  ModelSpec spec;
  spec.input.sample = c.ignored ? Shape{2, kIn} : Shape{kIn};
  spec.layers = {{.kind = "linear", .attributes = {{"out", kOut}, {"bias", false}}}};
  auto learner = std::make_unique<Learner>(
      make_model(spec), find_loss(c.loss, c.keys), OptimizerSpec{.name = "sgd"}, RequantPolicy{accumulate, accumulate},
      [](int64_t) { return kRate; }, 7);
  learner->plan({.input = spec.input, .outputs = kOut, .train_samples = kN / accumulate, .eval_samples = 10});
  return learner;
}

double number(const Attributes& keys, const char* key, double standard) {
  return keys.contains(key) ? keys.number(key) : standard;
}

// The loss of a window and its gradient with respect to w [3,6]: the formulas of the documentation, in double.
struct Reference {
  double loss = 0;
  std::vector<double> gradient = std::vector<double>(kOut * kIn, 0.0);
};
Reference reference(const Case& c, const Problem& p, const std::vector<double>& w) {
  Reference out;
  const std::vector<double> x = p.x.elements(), t = p.target.elements();
  const double e = number(c.keys, "smoothing", 0);
  double divisor = 0;
  for (size_t r = 0; r < x.size() / kIn; ++r) {
    if (!c.soft && t[r] == kIgnoredClass) continue;
    double z[kOut], total = 0, slope[kOut] = {}, hot[kOut];
    for (size_t k = 0; k < kOut; ++k) {
      z[k] = 0;
      for (size_t i = 0; i < kIn; ++i) z[k] += w[k * kIn + i] * x[r * kIn + i];
      total += std::exp(z[k]);
      hot[k] = c.soft ? t[r * kOut + k] : t[r] == static_cast<double>(k) ? 1 : 0;
    }
    if (c.loss == "sigmoid_cross_entropy") {
      divisor += kOut;
      for (size_t k = 0; k < kOut; ++k) {
        const double s = 1 / (1 + std::exp(-z[k]));
        out.loss -= kPos[k] * hot[k] * std::log(s) + (1 - hot[k]) * std::log(1 - s);
        slope[k] = -kPos[k] * hot[k] * (1 - s) + (1 - hot[k]) * s;
      }
    } else {
      double weight = 1;
      if (c.keys.contains("weights")) {
        weight = 0;
        for (size_t k = 0; k < kOut; ++k) weight += hot[k] * static_cast<double>(static_cast<float>(kWeights[k]));
      }
      divisor += weight;
      for (size_t k = 0; k < kOut; ++k) {
        const double q = (1 - e) * hot[k] + e / kOut, softmax = std::exp(z[k]) / total;
        out.loss -= weight * q * std::log(softmax);
        slope[k] = weight * (softmax - q);
      }
    }
    for (size_t k = 0; k < kOut; ++k)
      for (size_t i = 0; i < kIn; ++i) out.gradient[k * kIn + i] += slope[k] * x[r * kIn + i];
  }
  out.loss /= divisor;
  for (double& g : out.gradient) g /= divisor;
  return out;
}

Tensor rows(const Tensor& t, int64_t begin, int64_t end) {
  std::vector<int64_t> dims = t.shape().dims();
  const int64_t each = t.numel() / dims[0];
  const std::vector<double> all = t.elements();
  dims[0] = end - begin;
  return Tensor::from_elements(Shape(dims), t.dtype(),
                               std::vector<double>(all.begin() + begin * each, all.begin() + end * each));
}

}  // namespace

TEST_CASE("A step is that of the formula in double, divided by the weight of the whole window") {
  for (const Case& c : cases()) {
    const Problem p = problem_of(c);
    for (const int64_t micro : {100, 25, 1}) {
      INFO(c.what << ", microbatches of " << micro);
      const auto learner = learner_of(c, kN / micro);
      const std::vector<double> before = learner->model().parameters()[0]->value().elements();
      const Reference expected = reference(c, p, before);
      StepResult sums;
      for (int64_t at = 0; at < kN; at += micro)
        add_sums(learner->microbatch(rows(p.x, at, at + micro), rows(p.target, at, at + micro)), sums);
      CHECK(sums.loss / sums.weight == Approx(expected.loss).epsilon(1e-6));
      const std::vector<double> after = learner->model().parameters()[0]->value().elements();
      for (size_t i = 0; i < after.size(); ++i)
        CHECK(std::fabs((before[i] - after[i]) / static_cast<double>(kRate) - expected.gradient[i]) < 1e-6);
    }
  }
}

TEST_CASE("An evaluation reports the loss of the same formula for any batches, and perplexity of the plain one") {
  const KeepModes keep;
  Problem p = problem_of({"", "softmax_cross_entropy", {}});
  MemoryDatasetSpec spec;
  spec.samples = {"x", StoredAs::kFloat, Shape{kIn}, kN, p.x.data()};
  spec.targets = {"y", StoredAs::kInt32, Shape{}, kN, p.target.data()};
  spec.classes = kOut;
  const auto data = make_memory_dataset(spec);
  const Case plain{"", "softmax_cross_entropy", {}};
  for (const Case& c : {plain, cases()[0], cases()[1], cases()[2]}) {
    const auto learner = learner_of(c, 1);
    const std::vector<double> w = learner->model().parameters()[0]->value().elements();
    const double loss = reference(c, p, w).loss, plain_loss = reference(plain, p, w).loss;
    for (const int64_t batch : {100, 30, 7, 1}) {
      INFO(c.what << ", batches of " << batch);
      const Evaluation e = evaluate(*learner, *data, batch);
      CHECK(e.loss == Approx(loss).epsilon(1e-6));
      StepResult sums;  // as if the classes were ids, which have a perplexity
      for (int64_t i = 0; i < kN; i += batch) {
        const int64_t end = std::min(i + batch, kN);
        add_sums(learner->evaluate(p.x.row_slice(i, end), p.target.row_slice(i, end)), sums);
      }
      const MetricTask of_ids{{.shape = {}, .classes = kOut}, "softmax_cross_entropy", kOut};
      CHECK(value_of(metric_values(of_ids, sums), "perplexity").value() == Approx(std::exp(plain_loss)).epsilon(1e-6));
    }
  }
}

TEST_CASE("Classes of weight 0 count nowhere, and a window of them is skipped") {
  const Case c{"", "softmax_cross_entropy", {{"weights", std::vector<double>{0, 1, 1}}}};
  const auto learner = learner_of(c, 1);
  const std::vector<double> before = learner->model().parameters()[0]->value().elements();
  const std::vector<int32_t> zeros(4, 0);
  const StepResult r = learner->microbatch(random_tensor({4, kIn}, dtypes::fp32, 1), zeros);
  CHECK(r.skipped);
  CHECK(learner->model().parameters()[0]->value().elements() == before);
}

TEST_CASE("Keys of losses are checked against the model and the data before a run") {
  CHECK(contains(error_of([] {
                   learner_of({"", "softmax_cross_entropy", {{"weights", std::vector<double>{1, 2}}}}, 1);
                 }),
                 "weights: got 2 numbers, the model has 3 outputs. Give one for each"));
  CHECK(contains(error_of([] {
                   learner_of({"", "sigmoid_cross_entropy", {{"pos_weight", std::vector<double>{1, 2}}}}, 1);
                 }),
                 "pos_weight: got 2 numbers, the model has 3 outputs"));
  CHECK(contains(error_of([] {
                   find_loss("softmax_cross_entropy", {{"weights", std::vector<double>{0, 0, 0}}});
                 }),
                 "weights: all are 0, so that no class counts"));
  CHECK(contains(error_of([] {
                   find_loss("softmax_cross_entropy", {{"weights", std::vector<double>{1, -1}}});
                 }),
                 "weights: got [1, -1], expected a list of numbers in [0, 1e9]"));
  CHECK(contains(error_of([] { find_loss("softmax_cross_entropy", {{"smoothing", 1.0}}); }), "smoothing: got 1"));
}

namespace {

constexpr const char* kUneven = R"yaml(version: 1
run: {seed: 1}
data: {train: {format: digits, size: 40}}
model: {layers: [linear: {out: 10}]}
loss: {softmax_cross_entropy: {weights: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], smoothing: 0.1}}
batch: {global: 20, micro: 5}
optim: {name: sgd, lr: 0.1}
train: {stop: 2 epochs}
)yaml";

}  // namespace

TEST_CASE("A configuration names class weights and smoothing, keeps them, and the run is resumed with them") {
  const KeepModes keep;
  const RunConfig config = small_config({}, kUneven);
  CHECK(parse_config(to_yaml(config), "again.yaml").loss_keys == config.loss_keys);
  const TempDir uninterrupted_folder, folder;
  const TrainOutcome uninterrupted = Trainer(config).run(uninterrupted_folder.path());
  int polls = 0;
  TrainHooks hooks;
  hooks.stop_requested = [&] { return ++polls >= 5 ? StopRequest::kInterrupt : StopRequest::kNone; };
  Trainer(config).run(folder.path(), hooks);
  Trainer rest(config);
  rest.resume(folder.path() + "/last.safetensors");
  CHECK(rest.run(folder.path()).state_hash == uninterrupted.state_hash);
  const auto last_train = [](const std::string& path) {
    const std::string text = text_of(path + "/metrics.jsonl");
    return text.substr(text.rfind("\"loss\""), 20);
  };
  CHECK(last_train(folder.path()) == last_train(uninterrupted_folder.path()));
  CHECK(contains(error_of([] { small_config({"loss={softmax_cross_entropy: {weights: 3}}"}, kUneven); }),
                 "expected a list of numbers in [0, 1e9]"));
}
