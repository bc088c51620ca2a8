// One form of a loss: outputs and a target, classes or values; what the optimizer divides by is what counts.
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/learner.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::random_tensor;

constexpr int64_t kIn = 5, kOut = 3;

std::unique_ptr<Learner> linear_learner(LossFunction loss, int64_t accumulate, float rate) {
  OptimizerSpec sgd;
  sgd.name = "sgd";
  auto learner = std::make_unique<Learner>(
      make_linear(kIn, kOut, {}), std::move(loss), sgd, RequantPolicy{accumulate, accumulate},
      [rate](int64_t) { return rate; }, 7);
  learner->plan({.input = {.sample = {kIn}}, .outputs = kOut, .train_samples = 4, .eval_samples = 4});
  return learner;
}

std::vector<double> weights(Learner& learner) {
  std::vector<double> all;
  for (const Parameter* p : learner.model().parameters())
    for (const double v : p->value().elements()) all.push_back(v);
  return all;
}

// What one step of gradient descent on the mean over all elements makes of w [3,5], in double.
std::vector<double> stepped(const std::vector<double>& w, const std::vector<Tensor>& x, const std::vector<Tensor>& t,
                            double rate, double (*slope)(double y, double t)) {
  std::vector<double> gradient(kIn * kOut, 0.0);
  double count = 0;
  for (size_t b = 0; b < x.size(); ++b)
    for (int64_t r = 0; r < x[b].rows(); ++r)
      for (int64_t o = 0; o < kOut; ++o, ++count) {
        double y = 0;
        for (int64_t i = 0; i < kIn; ++i)
          y += w[static_cast<size_t>(o * kIn + i)] * static_cast<double>(x[b].at({r, i}));
        for (int64_t i = 0; i < kIn; ++i)
          gradient[static_cast<size_t>(o * kIn + i)] +=
              slope(y, static_cast<double>(t[b].at({r, o}))) * static_cast<double>(x[b].at({r, i}));
      }
  std::vector<double> result = w;
  for (size_t i = 0; i < result.size(); ++i) result[i] -= rate * gradient[i] / count;
  return result;
}

TEST_CASE("Losses over values train by the mean over all elements of a window, for any microbatches") {
  struct Case {
    const char* loss;
    double (*value)(double y, double t);
    double (*slope)(double y, double t);
  };
  const std::vector<Case> cases = {
      {"mean_squared_error", [](double y, double t) { return (y - t) * (y - t); },
       [](double y, double t) { return 2 * (y - t); }},
      {"sigmoid_cross_entropy", [](double y, double t) { return std::log1p(std::exp(y)) - y * t; },
       [](double y, double t) { return 1 / (1 + std::exp(-y)) - t; }}};
  for (const Case& c : cases)
    for (const int64_t parts : {1, 2}) {
      INFO(c.loss << " in " << parts);
      const auto learner = linear_learner(find_loss(c.loss), parts, 0.25f);
      const std::vector<double> before = weights(*learner);
      std::vector<Tensor> x, t;
      double expected = 0, seen = 0;
      for (int64_t b = 0; b < parts; ++b) {
        const int64_t rows = b == 0 ? 4 : 1;  // of unequal size
        x.push_back(random_tensor({rows, kIn}, dtypes::fp32, static_cast<uint64_t>(b) + 1));
        t.push_back(random_tensor({rows, kOut}, dtypes::fp32, static_cast<uint64_t>(b) + 9, 0, 1));
        const StepResult r = learner->microbatch(x.back(), t.back());
        CHECK(r.counted == rows * kOut);
        CHECK(r.samples == rows);
        CHECK(r.correct == 0);
        CHECK(r.stepped == (b + 1 == parts));
        seen += r.loss;
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t o = 0; o < kOut; ++o) {
            double y = 0;
            for (int64_t i = 0; i < kIn; ++i)
              y += before[static_cast<size_t>(o * kIn + i)] * static_cast<double>(x.back().at({row, i}));
            expected += c.value(y, static_cast<double>(t.back().at({row, o})));
          }
      }
      CHECK(std::fabs(seen - expected) <= 4e-6 * expected);
      const std::vector<double> wanted = stepped(before, x, t, 0.25, c.slope), got = weights(*learner);
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(std::fabs(got[i] - wanted[i]) <= 4e-6);
    }
}

TEST_CASE("Evaluations of values sum squared errors, and accept values of another shape of the same size") {
  const auto learner = linear_learner(find_loss("mean_squared_error"), 1, 0.1f);
  const Tensor x = random_tensor({4, kIn}, dtypes::fp32, 1), t = random_tensor({4, kOut}, dtypes::fp32, 2);
  const Tensor y = learner->predict(x);
  double expected = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double d = static_cast<double>(y.as<float>()[i]) - static_cast<double>(t.as<float>()[i]);
    expected += d * d;
  }
  const StepResult r = learner->evaluate(x, t);
  CHECK(std::fabs(r.squared_error - expected) <= 1e-12 * expected);
  CHECK(std::fabs(r.loss - expected) <= 2e-6 * expected);
  CHECK(r.counted == 12);
  CHECK(learner->evaluate(x, t.reshape({4, kOut, 1})).loss == r.loss);
}

TEST_CASE("An unsupported target of the loss is refused before anything runs, and the next microbatch trains") {
  const Tensor x = random_tensor({4, kIn}, dtypes::fp32, 1), values = random_tensor({4, kOut}, dtypes::fp32, 2);
  const std::vector<int32_t> labels{0, 1, 2, 0};
  const auto of_values = linear_learner(find_loss("mean_squared_error"), 1, 0.1f);
  CHECK(contains(error_of([&] { of_values->microbatch(x, labels); }),
                 "[microbatch] loss mean_squared_error expects values (fp32) as targets, got [4] int32"));
  CHECK(contains(error_of([&] { of_values->microbatch(x, values.row_slice(0, 3)); }),
                 "labels: got 3, expected one for each of 4 samples"));
  CHECK(contains(error_of([&] {
                   of_values->microbatch(x, random_tensor({4, 2}, dtypes::fp32, 3));
                 }),
                 "[mean_squared_error] targets must have the shape of outputs [4,3] fp32, got [4,2] fp32"));
  CHECK(of_values->microbatch(x, values).stepped);
  const auto of_classes = linear_learner(find_loss("squared_hinge"), 1, 0.1f);
  CHECK(contains(error_of([&] { of_classes->microbatch(x, values); }),
                 "loss squared_hinge expects classes (int32) as targets, got [4,3] fp32"));
  CHECK(of_classes->microbatch(x, labels).counted == 4);
}

TEST_CASE("Classes in a tensor and on the host are one target, and hits among the first five are counted") {
  OptimizerSpec sgd;
  sgd.name = "sgd";
  constexpr int64_t kClasses = 9, kRows = 20;
  const Tensor x = random_tensor({kRows, kIn}, dtypes::fp32, 3);
  std::vector<int32_t> labels;
  std::vector<double> numbers;
  for (int64_t i = 0; i < kRows; ++i)
    labels.push_back(static_cast<int32_t>(i * 5 % kClasses)), numbers.push_back(labels.back());
  const auto make = [&] {
    auto learner = std::make_unique<Learner>(
        make_linear(kIn, kClasses, {}), find_loss("softmax_cross_entropy"), sgd, RequantPolicy{},
        [](int64_t) { return 0.5f; }, 1);
    learner->plan({.input = {.sample = {kIn}}, .outputs = kClasses, .train_samples = kRows, .eval_samples = kRows});
    return learner;
  };
  const auto a = make(), b = make();
  const Tensor target = Tensor::from_elements({kRows}, dtypes::int32, numbers);
  for (int i = 0; i < 3; ++i) CHECK(a->microbatch(x, labels).loss == b->microbatch(x, target).loss);
  CHECK(weights(*a) == weights(*b));
  const StepResult r = a->evaluate(x, labels);
  const Tensor y = a->predict(x);
  int64_t first = 0, five = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    const int64_t label = labels[static_cast<size_t>(n)];
    int64_t before = 0;
    for (int64_t c = 0; c < kClasses; ++c) {
      const float other = y.at({n, c}), own = y.at({n, label});
      before += other > own || (other == own && c < label);
    }
    first += before == 0;
    five += before < 5;
  }
  CHECK(r.correct == first);
  CHECK(r.among_top5 == five);
  CHECK(five > first);
  CHECK(five < kRows);
}

}  // namespace
}  // namespace bitgrad
