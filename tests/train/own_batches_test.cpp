// Learners without a data set: the caller feeds the batches, whose sizes are not known before.
#include "support/expect_error.h"
#include "train/digits_nets.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE(
    "a program that feeds its own batches may have norms for any number of epochs, and gets the error of one row") {
  const KeepModes keep;
  for (const int64_t epoch : {1, 51, 400}) {
    INFO(epoch);
    const auto learner = build_learner(digits(), Form{.sample = Shape{28, 28}}, 10, epoch);
    const auto step = [&](int64_t rows) {
      const std::vector<int32_t> labels(static_cast<size_t>(rows), 3);
      const Tensor x = Tensor::full({rows, 784}, dtypes::fp32, 0.5);
      return learner->microbatch(x, labels).samples;
    };
    CHECK(step(2) == 2);
    CHECK(contains(error_of([&] { step(1); }), "the variance of one value is not defined"));
    CHECK(step(3) == 3);
  }
  CHECK(contains(error_of([] {
                   Trainer(digits({"data.train.size=51", "data.test.size=50"}));
                 }),
                 "a training batch of 1 sample gives each statistic one value"));
}
