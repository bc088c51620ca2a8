// Losses that are means, and the totals that metrics are made of.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor integers(const Shape& shape, const std::vector<double>& numbers) {
  return Tensor::from_elements(shape, dtypes::int32, numbers);
}
// Targets of logits [.., classes], every fifth ignored.
Tensor drawn_targets(const Shape& logits, int32_t ignore) {
  std::vector<double> t;
  for (int64_t i = 0; i < logits.rows(); ++i)
    t.push_back(i % 5 == 3 ? ignore : static_cast<double>(i * 7 % logits.cols()));
  const std::vector<int64_t>& dims = logits.dims();
  return integers(Shape(std::vector<int64_t>(dims.begin(), dims.end() - 1)), t);
}

// In doubles: the sum over positions that count, and how many.
std::pair<double, int64_t> exact_cross_entropy(const Tensor& logits, const Tensor& targets, int32_t ignore) {
  const std::vector<double> y = logits.elements(), t = targets.elements();
  const auto classes = static_cast<size_t>(logits.cols());
  double sum = 0;
  int64_t count = 0;
  for (size_t r = 0; r < t.size(); ++r) {
    if (t[r] == ignore) continue;
    double total = 0;
    for (size_t c = 0; c < classes; ++c) total += std::exp(y[r * classes + c]);
    sum += std::log(total) - y[r * classes + static_cast<size_t>(t[r])];
    ++count;
  }
  return {sum, count};
}

}  // namespace

TEST_CASE("the mean losses pass the gradient check") {
  for (const Shape& shape : {Shape{3}, Shape{1, 1}, Shape{4, 5}, Shape{2, 3, 4}}) {
    INFO(shape);
    const Tensor y = random_tensor(shape, dtypes::fp64, 1, -3, 3), t = random_tensor(shape, dtypes::fp64, 2, 0, 1);
    const Tensor classes = drawn_targets(shape, -1);
    const auto targets = [&](const Var& v) { return Tensor::from_elements(shape, v.dtype(), t.elements()); };
    const std::vector<std::function<Var(const Var&)>> losses = {
        [&](const Var& v) { return mean_squared_error(v, targets(v)); },
        [&](const Var& v) { return sigmoid_cross_entropy(v, targets(v)); },
        [&](const Var& v) { return cross_entropy(v, here(classes), Reduction::kMean, -1); }};
    for (const auto& loss : losses) {
      CHECK(gradcheck([&](const auto& v) { return loss(v[0]); }, {y}) == "");
      CHECK(gradcheck([&](const auto& v) { return mul(loss(v[0]), loss(v[0])); }, {y}) == "");
    }
  }
}

TEST_CASE("mean squared error is the mean over all elements") {
  const Tensor y = Tensor::from({1, 2, -1, 0.5f}, {2, 2}), t = Tensor::from({0, 4, -1, 0}, {2, 2});
  CHECK(mean_squared_error(Var(y), t).value().item() == (1 + 4 + 0 + 0.25) / 4);
  AccumulateSink sink;
  Tape tape;
  tape.backward(mean_squared_error(tape.leaf(y, &sink, dtypes::fp32), t));
  CHECK(sink.grad().elements() == std::vector<double>{0.5, -1, 0, 0.25});
  const Tensor narrow = random_tensor({7, 3}, dtypes::bf16, 3), target = random_tensor({7, 3}, dtypes::fp32, 4);
  const Tensor wide = Tensor::from(narrow.to_vector(), {7, 3});
  CHECK(mean_squared_error(Var(narrow), target).value().item() == mean_squared_error(Var(wide), target).value().item());
}

TEST_CASE("sigmoid cross-entropy is stable at both ends and exact between") {
  const auto loss = [](float x, float t) {
    return sigmoid_cross_entropy(Var(Tensor::from({x}, {1})), Tensor::from({t}, {1})).value().item();
  };
  for (const float x : {-80.0f, -20.0f, -3.5f, -1e-3f, 0.0f, 0.7f, 5.0f, 30.0f, 80.0f})
    for (const float t : {0.0f, 0.25f, 1.0f}) {
      const double exact = std::max<double>(x, 0) - double{x} * double{t} + std::log1p(std::exp(-std::fabs(double{x})));
      INFO(x << ' ' << t);
      CHECK(std::fabs(loss(x, t) - exact) <= 0x1p-24 * exact + 1e-45);
    }
  CHECK(loss(3e38f, 1) == 0);
  CHECK(loss(-3e38f, 0) == 0);
  CHECK(loss(3e38f, 0) == static_cast<double>(3e38f));
  CHECK(std::isnan(loss(NAN, 0)));
  AccumulateSink sink;
  Tape tape;
  tape.backward(sigmoid_cross_entropy(tape.leaf(Tensor::from({0, 100, -100, 1}, {4}), &sink, dtypes::fp32),
                                      Tensor::from({1, 1, 1, 0}, {4})));
  const std::vector<double> g = sink.grad().elements();
  CHECK(g[0] == -0.125);
  CHECK(std::fabs(g[1]) <= 1e-40);
  CHECK(g[2] == -0.25);
  CHECK(std::fabs(g[3] - 0.25 / (1 + std::exp(-1.0))) <= 1e-8);
}

TEST_CASE("cross-entropy over positions is the mean over those that count") {
  for (const Shape& shape : {Shape{5}, Shape{9, 4}, Shape{3, 6, 11}, Shape{2, 3, 2, 1030}})
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      INFO(shape << ' ' << dtype);
      const Tensor y = random_tensor(shape, dtype, 5, -4, 4), t = drawn_targets(shape, kIgnoreIndex);
      const auto [sum, count] = exact_cross_entropy(y, t, kIgnoreIndex);
      const double mean = sum / static_cast<double>(count);
      CHECK(std::fabs(cross_entropy(Var(y), t).value().item() - mean) <= 4e-6 * mean + 1e-7);
      CHECK(target_count(t).item() == static_cast<double>(count));
      CHECK(std::fabs(cross_entropy(Var(y), t, Reduction::kSum).value().item() - sum) <= 4e-6 * sum + 1e-7);
    }
}

TEST_CASE("its gradient is (softmax - onehot) / count, and zero where nothing counts") {
  const Tensor y = random_tensor({6, 5}, dtypes::fp32, 6, -2, 2), t = integers({6}, {0, -1, 4, 2, -1, 3});
  AccumulateSink sink;
  Tape tape;
  tape.backward(cross_entropy(tape.leaf(y, &sink, dtypes::fp32), t, Reduction::kMean, -1));
  const std::vector<double> p = softmax(Var(y)).value().elements(), g = sink.grad().elements(), target = t.elements();
  for (size_t r = 0; r < 6; ++r)
    for (size_t c = 0; c < 5; ++c) {
      const float share = static_cast<float>(p[r * 5 + c]);
      const float expected = (static_cast<double>(c) == target[r] ? share - 1.0f : share) * (1.0f / 4.0f);
      CHECK(g[r * 5 + c] == (target[r] < 0 ? 0.0 : double{expected}));
    }
}

TEST_CASE("with every position counted it is the sum of the op over labels, divided by the rows, to rounding") {
  const Tensor y = random_tensor({16, 7}, dtypes::fp32, 7, -3, 3);
  std::vector<int32_t> labels;
  for (int i = 0; i < 16; ++i) labels.push_back(i * 3 % 7);
  const Tensor t = integers({16}, std::vector<double>(labels.begin(), labels.end()));
  const double sum = label_loss(Var(y), labels).value().item();
  CHECK(std::fabs(cross_entropy(Var(y), t).value().item() * 16 - sum) <= 1e-5);
}

TEST_CASE("the sum over positions is the mean times what counts, with the gradient of the mean seeded with the count") {
  for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
    const Tensor y = random_tensor({3, 2, 7}, dtype, 7, -3, 3), t = integers({3, 2}, {1, -100, 6, 0, -100, 3});
    const auto run = [&](bool mean) {
      Tape tape;
      AccumulateSink sink;
      const Var leaf = tape.leaf(y, &sink, dtypes::fp32),
                loss = mean ? cross_entropy(leaf, t) : cross_entropy(leaf, t, Reduction::kSum);
      tape.backward({loss}, {Tensor::full(Shape{}, dtypes::fp32, mean ? 4 : 1)});
      return std::pair{loss.value().item(), sink.grad().elements()};
    };
    const auto mean = run(true), sum = run(false);
    CHECK(std::fabs(mean.first * 4 - sum.first) <= 1e-5);
    CHECK(mean.second == sum.second);
  }
  const Tensor y = random_tensor({2, 3}, dtypes::fp32, 1), none = integers({2}, {-100, -100});
  Tape tape;
  AccumulateSink sink;
  const Var loss = cross_entropy(tape.leaf(y, &sink, dtypes::fp32), none, Reduction::kSum);
  CHECK(loss.value().item() == 0);
  tape.backward(loss);
  CHECK(sink.grad().elements() == std::vector<double>(6, 0.0));
  CHECK(gradcheck(
            [&](const auto& v) {
              return cross_entropy(v[0], integers({2, 2}, {1, 0, -100, 2}), Reduction::kSum);
            },
            {random_tensor({2, 2, 3}, dtypes::fp64, 5)}) == "");
}

TEST_CASE("wrong targets, or none that counts, are errors with their place") {
  const Tensor y = Tensor::zeros({2, 3, 4}, dtypes::fp32);
  CHECK(error_of([&] {
          cross_entropy(Var(y), integers({2, 3}, {0, 1, 2, 3, 4, 0}));
        }) == "[cross_entropy] target at [1,1] is 4, expected 0 .. 3, or -100 to ignore it");
  CHECK(contains(error_of([&] {
                   top_k_count(y, integers({2, 3}, {0, 1, -2, 3, 0, 0}), 1, -1);
                 }),
                 "[top_k_count] target at [0,2] is -2, expected 0 .. 3, or -1 to ignore it"));
  CHECK(error_of([&] {
          cross_entropy(Var(y), integers({2, 3}, {-9, -9, -9, -9, -9, -9}), Reduction::kMean, -9);
        }) == "[cross_entropy] no target of [2,3] is valid (all are -9): there is nothing to average over");
  CHECK(error_of([&] {
          cross_entropy(Var(y), integers({6}, {0, 0, 0, 0, 0, 0}));
        }) == "[cross_entropy] targets of logits [2,3,4] fp32 must be [2,3], got [6] int32");
  CHECK(contains(error_of([&] {
                   cross_entropy(Var(y), Tensor::zeros({2, 3}, dtypes::fp32));
                 }),
                 "targets must be dense int32, got [2,3] fp32"));
  CHECK(contains(error_of([&] {
                   cross_entropy(Var(Tensor::zeros({2, 0}, dtypes::fp32)), integers({2}, {0, 0}));
                 }),
                 "logits must be [.., classes], got [2,0] fp32"));
  CHECK(error_of([&] {
          mean_squared_error(Var(y), Tensor::zeros({2, 3}, dtypes::fp32));
        }) == "[mean_squared_error] targets must have the shape of outputs [2,3,4] fp32, got [2,3] fp32");
  if (current_device().is_cpu())  // a device refuses fp64 before
    CHECK(contains(error_of([&] {
                     mean_squared_error(Var(y), Tensor::zeros({2, 3, 4}, dtypes::fp64));
                   }),
                   "outputs and targets are both fp64 or neither: got [2,3,4] fp32 and [2,3,4] fp64"));
  CHECK(contains(
      error_of([&] { mean_squared_error(Var(Tensor::zeros({0}, dtypes::fp32)), Tensor::zeros({0}, dtypes::fp32)); }),
      "outputs have no elements to average over"));
  CHECK(error_of([&] {
          sigmoid_cross_entropy(Var(Tensor::zeros({3}, dtypes::fp32)), Tensor::from({0, 1, 1.5f}, {3}));
        }) == "[sigmoid_cross_entropy] target 2 of [3] fp32 is 1.5, expected 0 .. 1");
  CHECK(contains(error_of([&] {
                   top_k_count(y, integers({2, 3}, {0, 0, 0, 0, 0, 0}), 0);
                 }),
                 "k is 0, expected at least 1"));
}

TEST_CASE("counts of the k largest: ties go to the lower index, NaN is before every number") {
  const Tensor y = Tensor::from({1, 1, 0, 0, 2, 2, 3, NAN, 1, NAN, 2, 1}, {4, 3});
  const auto count = [&](const std::vector<double>& t, int64_t k) {
    return top_k_count(y, integers({4}, t), k, -1).item();
  };
  CHECK(count({0, 1, 0, 1}, 1) == 2);
  CHECK(count({1, 2, 0, 1}, 1) == 0);
  CHECK(count({1, 2, 0, 1}, 2) == 4);
  CHECK(count({1, 2, 1, 0}, 3) == 2);
  CHECK(count({-1, -1, -1, 1}, 2) == 1);
  const Tensor many = random_tensor({1300, 9}, dtypes::fp32, 8);
  const Tensor t = drawn_targets({1300, 9}, -1);
  std::vector<int32_t> labels;
  for (const double v : t.elements()) labels.push_back(static_cast<int32_t>(v));
  int64_t hits = 0;
  for (int64_t i = 0; i < 1300; ++i) {
    const float* const row = many.as<float>() + i * 9;
    hits += std::max_element(row, row + 9) - row == labels[static_cast<size_t>(i)];
  }
  CHECK(top_k_count(many, t, 1, -1).item() == static_cast<double>(hits));
  CHECK(top_k_count(many, t, 9, -1).item() == target_count(t, -1).item());
}

TEST_CASE(
    "totals are added in double: pieces of 256 in ascending order, then pieces of those, on any number of threads") {
  for (const int64_t n : {1, 255, 256, 257, 70000}) {
    const Tensor y = random_tensor({n}, dtypes::fp32, 9), t = random_tensor({n}, dtypes::bf16, 10);
    std::vector<double> part;
    const std::vector<double> p = y.elements(), q = t.elements();
    for (size_t i = 0; i < p.size(); ++i) part.push_back((p[i] - q[i]) * (p[i] - q[i]));
    do {
      std::vector<double> next;
      for (size_t i = 0; i < part.size(); i += 256) {
        double sum = 0;
        for (size_t k = i; k < std::min(i + 256, part.size()); ++k) sum += part[k];
        next.push_back(sum);
      }
      part = next;
    } while (part.size() > 1);
    const int threads = num_threads();
    for (const int count : {1, 4}) {
      set_num_threads(count);
      CHECK(squared_error_total(y, t).item() == part[0]);
    }
    set_num_threads(threads);
  }
  CHECK(cross_entropy(Var(Tensor::zeros({0, 3}, dtypes::fp32)), integers({0}, {}), Reduction::kSum).value().item() ==
        0);
  CHECK(target_count(integers({0}, {})).item() == 0);
}
