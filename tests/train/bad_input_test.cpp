// Samples that are not finite are what is blamed, not the model that saw them.
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<int32_t> kLabels{0, 1, 2};

std::unique_ptr<Learner> floats(int64_t accumulate = 1, bool fused = true) {
  OptimizerSpec sgd;
  sgd.fused = fused;
  return std::make_unique<Learner>(
      make_sequential({linear_spec(4, dtypes::fp32, ""), plain_spec("relu"), linear_spec(3, dtypes::int4, "symmetric")},
                      kFeatures),
      find_loss("softmax_cross_entropy"), sgd, RequantPolicy{accumulate, accumulate}, [](int64_t) { return 0.1f; }, 1);
}
std::unique_ptr<Learner> quantized(int64_t accumulate = 1) {
  LayerSpec quantize = plain_spec("quantize");
  quantize.activation = ActivationQuant{QuantSpec{.dtype = dtypes::int8, .scheme = "absmax"}};
  return std::make_unique<Learner>(
      make_sequential({quantize, linear_spec(3, dtypes::int4, "symmetric")}, kFeatures), find_loss("squared_hinge"),
      OptimizerSpec{}, RequantPolicy{accumulate, accumulate}, [](int64_t) { return 0.1f; }, 1);
}

// relu(NaN) is 0: nothing behind it sees what the samples hold.
std::unique_ptr<Learner> relu_first(int64_t accumulate) {
  return std::make_unique<Learner>(
      make_sequential({plain_spec("relu"), linear_spec(3, dtypes::int4, "symmetric")}, kFeatures),
      find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{accumulate, accumulate},
      [](int64_t) { return 0.1f; }, 1);
}

Tensor good() { return Tensor::full({3, kFeatures}, dtypes::fp32, 0.5); }
Tensor bad(float what = std::numeric_limits<float>::quiet_NaN()) {
  Tensor x = good();
  x.as<float>()[kFeatures + 2] = what;
  return x;
}

std::vector<std::vector<uint32_t>> masters_of(Learner& learner) {
  std::vector<std::vector<uint32_t>> all;
  for (const Parameter* p : learner.model().parameters()) all.push_back(bits_of(p->master()));
  return all;
}

}  // namespace

TEST_CASE("a sample that is not finite is named with its place, before any parameter moves") {
  for (const bool fused : {true, false}) {
    const auto learner = floats(1, fused);
    const auto masters = masters_of(*learner);
    const auto step = [&] { learner->microbatch(bad(), kLabels); };
    CHECK(error_of(step) ==
          "[input] x [3,5] fp32 holds NaN at [1,2] in microbatch 0: samples must be finite. No parameter was updated.");
    CHECK(error_code_of(step) == 5);
    CHECK(learner->usable());
    CHECK(masters_of(*learner) == masters);
    CHECK(contains(error_of([&] { learner->microbatch(bad(-INFINITY), kLabels); }), "holds Inf at [1,2]"));
    CHECK(learner->microbatch(good(), kLabels).stepped);
  }
}

TEST_CASE("a quantizer that sees it first is not what is blamed") {
  const auto learner = quantized();
  CHECK(error_of([&] { learner->microbatch(bad(), kLabels); }) ==
        "[input] x [3,5] fp32 holds NaN at [1,2] in microbatch 0: samples must be finite. No parameter was updated.");
  const std::string evaluated = "[input] x [3,5] fp32 holds NaN at [1,2]: samples must be finite.";
  CHECK(error_of([&] { learner->predict(bad()); }) == evaluated);
  CHECK(error_of([&] { learner->evaluate(bad(), kLabels); }) == evaluated);
  CHECK(learner->microbatch(good(), kLabels).stepped);
}

TEST_CASE("samples that are not finite are refused also where no layer passes that on") {
  for (const int64_t accumulate : {1, 2}) {
    const auto learner = relu_first(accumulate);
    if (accumulate == 2) learner->microbatch(bad(), kLabels);
    CHECK(error_of([&] { learner->microbatch(accumulate == 2 ? good() : bad(), kLabels); }) ==
          "[input] x [3,5] fp32 holds NaN at [1,2] in microbatch 0: samples must be finite. No parameter was updated.");
    CHECK(learner->window_samples() == 0);
  }
}

TEST_CASE("the error at the end of a window names the microbatch whose samples were not finite") {
  for (const bool by_flush : {false, true}) {
    for (const bool quantizer : {false, true}) {
      const auto learner = quantizer ? quantized(4) : floats(4);
      learner->microbatch(good(), kLabels);
      learner->microbatch(bad(), kLabels);
      learner->microbatch(good(), kLabels);
      const std::string text =
          error_of([&] { by_flush ? learner->flush() : (void)learner->microbatch(good(), kLabels); });
      INFO(text);
      CHECK(
          text ==
          "[input] x [3,5] fp32 holds NaN at [1,2] in microbatch 1: samples must be finite. No parameter was updated.");
      CHECK(learner->window_samples() == 0);
      // It is forgotten with its window.
      for (int i = 0; i < 4; ++i) CHECK(learner->microbatch(good(), kLabels).stepped == (i == 3));
    }
  }
}

TEST_CASE("a loss that is not finite in an evaluation blames the samples when they are not") {
  const auto learner = floats();
  CHECK(error_of([&] { learner->evaluate(bad(), kLabels); }) ==
        "[input] x [3,5] fp32 holds NaN at [1,2]: samples must be finite.");
  CHECK(std::isfinite(learner->evaluate(good(), kLabels).loss));
}

TEST_CASE("finite samples are not blamed for a loss that is not finite") {
  const auto learner = floats(1, /*fused=*/false);
  const std::string text = error_of([&] {
    learner->microbatch(Tensor::full({3, kFeatures}, dtypes::fp32, 3e38), kLabels);
  });
  INFO(text);
  CHECK(contains(text, "[non-finite] the loss is nan in a forward pass at optimizer step 0."));
  CHECK_FALSE(contains(text, "[input]"));
}

TEST_CASE("an invalid label is named with its index, its value and what is allowed") {
  const auto learner = floats();
  CHECK(error_of([&] {
          learner->microbatch(good(), std::vector<int32_t>{0, 1, 77});
        }) == "[softmax_cross_entropy] label 2 is 77, allowed are 0 .. 2");
  CHECK(error_of([&] {
          learner->evaluate(good(), std::vector<int32_t>{0, -1, 1});
        }) == "[softmax_cross_entropy] label 1 is -1, allowed are 0 .. 2");
}
