// Cross-entropies with class weights, smoothing, probabilities and factors of positive labels, by hand and by gradient
// checks.
#include <cmath>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor floats(const Shape& shape, const std::vector<double>& x) {
  return Tensor::from_elements(shape, dtypes::fp32, x);
}
Tensor classes(const std::vector<double>& x) { return Tensor::from_elements({std::ssize(x)}, dtypes::int32, x); }
Tensor weights() { return floats({3}, {1, 0.25, 8}); }

}  // namespace

TEST_CASE("weighted losses pass the gradient check") {
  const Tensor y = random_tensor({4, 3}, dtypes::fp64, 1, -2, 2);
  const Tensor labels = classes({2, 0, kIgnoreIndex, 1});
  const Tensor soft = floats({4, 3}, {0.5, 0.25, 0.25, 1, 0, 0, 0.125, 0.125, 0.75, 0, 0.5, 0.5});
  for (const double smoothing : {0.0, 0.1})
    for (const Tensor& factors : {Tensor(), weights()})
      for (const Tensor& target : {labels, soft})
        CHECK(gradcheck(
                  [&](const auto& in) {
                    return weighted_cross_entropy_sum(in[0], here(target),
                                                      {.weights = here(factors), .smoothing = smoothing});
                  },
                  {y}) == "");
  const Tensor t = random_tensor({4, 3}, dtypes::fp64, 2, 0, 1);
  CHECK(gradcheck(
            [&](const auto& in) {
              const Tensor targets = Tensor::from_elements(t.shape(), in[0].dtype(), t.elements());
              return weighted_sigmoid_cross_entropy(in[0], targets, weights());
            },
            {y}) == "");
}

// [cpu]: fp64
TEST_CASE("without weights and smoothing the weighted losses are the plain ones", "[cpu]") {
  const Tensor y = random_tensor({5, 3}, dtypes::fp64, 1, -3, 3), t = random_tensor({5, 3}, dtypes::fp64, 2, 0, 1);
  const Tensor labels = classes({2, 0, 1, 1, 0});
  CHECK(weighted_cross_entropy_sum(y, labels, {}).value().item() ==
        Approx(cross_entropy(y, labels, Reduction::kSum, std::nullopt).value().item()).epsilon(1e-14));
  CHECK(weighted_sigmoid_cross_entropy(y, t, floats({3}, {1, 1, 1})).value().item() ==
        Approx(sigmoid_cross_entropy(y, t).value().item()).epsilon(1e-14));
}

TEST_CASE("a row counts by the weight of its class, an ignored one not at all, in fp32 as in double") {
  const std::vector<double> z{0.5, -1, 2, 3, 0, -2, 1, 1, 1};
  const Tensor labels = classes({2, kIgnoreIndex, 1});
  const auto term = [&](size_t r, size_t c) {
    return std::log(std::exp(z[3 * r]) + std::exp(z[3 * r + 1]) + std::exp(z[3 * r + 2])) - z[3 * r + c];
  };
  const double expected = 8 * term(0, 2) + 0.25 * term(2, 1);
  AccumulateSink sink;
  Tape tape;
  const Var y = tape.leaf(floats({3, 3}, z), &sink, dtypes::fp32);
  const Var loss = weighted_cross_entropy_sum(y, labels, {.weights = weights()});
  CHECK(loss.value().item() == Approx(expected).epsilon(1e-6));
  tape.backward(loss);
  for (size_t c = 0; c < 3; ++c) CHECK(sink.grad().elements()[3 + c] == 0);
}

TEST_CASE("a logit of -inf of a class without probability leaves the loss finite") {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor y = floats({1, 3}, {0, -inf, 1});
  CHECK(std::isfinite(weighted_cross_entropy_sum(y, classes({2}), {.weights = weights()}).value().item()));
}

TEST_CASE("unsupported arguments of weighted losses are errors with their place") {
  const Tensor y = random_tensor({2, 3}, dtypes::fp32, 1);
  const auto error = [&](const Tensor& target, const CrossEntropyOptions& o = {}) {
    return error_of([&] { weighted_cross_entropy_sum(y, target, o); });
  };
  CHECK(contains(error(classes({0, 3})), "target at [1] is 3, expected 0 .. 2, or -100 to ignore it"));
  CHECK(contains(error(floats({2, 3}, {1, 0, 0, 0.5, 0.6, 0})), "row 1 of the targets have the sum 1.1"));
  CHECK(contains(error(floats({2, 3}, {1, 0, 0, 1.5, -0.5, 0})), "probability 1 of row 1 of the targets is -0.5"));
  CHECK(contains(error(floats({2, 2}, {1, 0, 0, 1})), "fp32 in the shape of the logits"));
  CHECK(contains(error(classes({0, 1}), {.weights = floats({2}, {1, 1})}), "weights must be fp32 [3]"));
  CHECK(contains(error(classes({0, 1}), {.smoothing = 1}), "smoothing is 1, expected 0 to below 1"));
  CHECK(contains(error_of([&] {
                   weighted_sigmoid_cross_entropy(y, y, floats({2}, {1, 1}));
                 }),
                 "pos_weight must be fp32 [3]"));
}
