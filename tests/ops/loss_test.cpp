#include "bitgrad/base/math.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Loss = Var (*)(const Var&, std::span<const int32_t>);
const std::vector<Loss> kLosses = {squared_hinge, label_loss};

std::vector<int32_t> labels_of(int64_t n, int64_t classes) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((i * 7 + 2) % classes));
  return out;
}

Tensor matrix(const Shape& shape, const std::vector<double>& numbers) {
  return Tensor::from_elements(shape, dtypes::fp32, numbers);
}

}  // namespace

TEST_CASE("losses pass the gradient check") {
  for (const Loss loss : kLosses)
    for (const Shape& shape : {Shape{1, 1}, Shape{1, 10}, Shape{6, 2}, Shape{5, 7}}) {
      const auto labels = labels_of(shape[0], shape[1]);
      CHECK(gradcheck([&](const auto& v) { return loss(v[0], labels); },
                      {random_tensor(shape, dtypes::fp64, 21, -2, 2)}) == "");
      // as an inner node, with a gradient that is not 1
      CHECK(gradcheck([&](const auto& v) { return mul(loss(v[0], labels), loss(v[0], labels)); },
                      {random_tensor(shape, dtypes::fp64, 22, -2, 2)}) == "");
    }
}

TEST_CASE("squared hinge is the sum over samples of the mean over classes") {
  // margins: 1 - 0.5 = 0.5, 1 - 3 < 0, 1 + 0.25 = 1.25 (label 0); all numbers exact in fp32
  // The third row has margins a little below 0.
  const std::vector<int32_t> labels = {0, 2, 0};
  const Tensor y = matrix({3, 4}, {0.5, -3, 0.25, -1, 0, 0, 1, 0, 1.5, -1.5, 0, 0});
  const double first = (0.25 + 0 + 1.5625 + 0) / 4, second = (1 + 1 + 0 + 1) / 4.0, third = (0 + 0 + 1 + 1) / 4.0;
  CHECK(squared_hinge(Var(y), labels).value().item() == first + second + third);
  AccumulateSink sink;
  Tape tape;
  tape.backward(squared_hinge(tape.leaf(y, &sink, dtypes::fp32), labels));
  CHECK(sink.grad().elements() == std::vector<double>{-0.25, 0, 0.625, 0, 0.5, 0.5, 0, 0.5, 0, 0, 0.5, 0.5});
}

TEST_CASE("softmax cross-entropy is the log of the probability of the label") {
  const std::vector<int32_t> labels = labels_of(9, 5);
  const Tensor y = random_tensor({9, 5}, dtypes::fp32, 23, -4, 4);
  const std::vector<double> numbers = y.elements();
  double expected = 0;
  for (size_t r = 0; r < 9; ++r) {
    double total = 0;
    for (size_t c = 0; c < 5; ++c) total += std::exp(numbers[r * 5 + c]);
    expected += std::log(total) - numbers[r * 5 + static_cast<size_t>(labels[r])];
  }
  CHECK(std::fabs(label_loss(Var(y), labels).value().item() - expected) <= 1e-6 * expected);
  SECTION("logits of any size neither overflow nor lose the answer") {
    const std::vector<int32_t> one = {1};
    CHECK(label_loss(Var(matrix({1, 2}, {-3e38, 3e38})), one).value().item() == 0);
    CHECK(label_loss(Var(matrix({1, 2}, {1000, 0})), one).value().item() == 1000);
    CHECK(label_loss(Var(matrix({1, 1}, {5})), std::vector<int32_t>{0}).value().item() == 0);
  }
}

TEST_CASE("a loss of no samples is 0, a loss of NaN is NaN") {
  const Tensor none = Tensor::zeros({0, 3}, dtypes::fp32);
  for (const Loss loss : kLosses) {
    CHECK(loss(Var(none), {}).value().item() == 0);
    CHECK(std::isnan(loss(Var(matrix({1, 2}, {NAN, 0})), std::vector<int32_t>{0}).value().item()));
  }
}

TEST_CASE("hits count the first of equal logits") {
  const Tensor y = matrix({4, 3}, {1, 1, 0, 0, 2, 2, -1, -2, -1, 0, 0, 1});
  CHECK(count_correct(y, std::vector<int32_t>{0, 1, 0, 2}) == 4);
  CHECK(count_correct(y, std::vector<int32_t>{1, 2, 2, 0}) == 0);
  CHECK(count_correct(Tensor::zeros({0, 3}, dtypes::fp32), {}) == 0);
  CHECK(contains(error_of([&] {
                   count_correct(Tensor::zeros({1, 3}, dtypes::fp64), std::vector<int32_t>{0});
                 }),
                 "must be fp32, got [1,3] fp64"));
}

TEST_CASE("labels may be in a tensor") {
  const Tensor y = random_tensor({6, 5}, dtypes::fp32, 3, -2, 2);
  const std::vector<int32_t> labels = labels_of(6, 5);
  const Tensor t = Tensor::from_elements({6}, dtypes::int32, std::vector<double>(labels.begin(), labels.end()));
  CHECK(squared_hinge(y, t).value().item() == squared_hinge(y, labels).value().item());
  CHECK(cross_entropy(y, t, Reduction::kSum, std::nullopt).value().item() == label_loss(y, labels).value().item());
  CHECK(top_k_count(y, t, 1).item() == static_cast<double>(count_correct(y, labels)));
  const Tensor bad = Tensor::from_elements({6}, dtypes::int32, std::vector<double>{0, 1, 2, 3, 5, 0});
  CHECK(contains(error_of([&] { squared_hinge(y, bad); }), "label 4 is 5, allowed are 0 .. 4"));
  CHECK(contains(error_of([&] { squared_hinge(y, y); }), "labels must be dense int32, got [6,5] fp32"));
  CHECK(contains(error_of([&] { squared_hinge(y, t.row_slice(0, 5)); }), "have 6 rows, got 5 labels"));
}

TEST_CASE("wrong logits and labels are errors with what is allowed") {
  const std::vector<int32_t> two = {0, 1};
  const Tensor y = Tensor::zeros({2, 3}, dtypes::fp32);
  CHECK(error_of([&] { squared_hinge(Var(y), std::vector<int32_t>{0}); }) ==
        "[squared_hinge] logits [2,3] fp32 have 2 rows, got 1 labels");
  CHECK(error_of([&] {
          label_loss(Var(y), std::vector<int32_t>{0, 3});
        }) == "[softmax_cross_entropy] label 1 is 3, allowed are 0 .. 2");
  CHECK(contains(error_of([&] {
                   squared_hinge(Var(y), std::vector<int32_t>{-1, 0});
                 }),
                 "label 0 is -1, allowed are 0 .. 2"));
  CHECK(contains(error_of([&] { squared_hinge(Var(Tensor::zeros({6}, dtypes::fp32)), two); }),
                 "logits must be [n, classes], got [6] fp32"));
  CHECK(contains(error_of([&] {
                   squared_hinge(Var(Tensor::zeros({2, 0}, dtypes::fp32)), two);
                 }),
                 "logits must be [n, classes], got [2,0] fp32"));
  CHECK(contains(error_of([&] {
                   squared_hinge(Var(Tensor::zeros({2, 3}, dtypes::int8)), two);
                 }),
                 "[squared_hinge] logits must be fp32"));
}
