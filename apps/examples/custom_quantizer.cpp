// A custom scheme, registered in a few lines without rebuilding the library, and used for training at once, by its
// name, in every layer that accepts a scheme. With absmax a single outlier determines the scale of a whole channel.
// quantile_clip (plugin/quantile_clip.cpp, which a plugin registers in the same way) ignores the largest fifth of the
// values, which pays off with the three codes of int2.
//
//   build/release/bin/custom_quantizer
#include <cstdio>
#include <iostream>

#include "bitgrad/data/loader.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/train/learner.h"
#include "parts.h"  // of plugin/

using namespace bitgrad;

namespace {

// linear -> batch_norm -> relu -> quantize -> linear. Both weights and the activations in between use `scheme`.
std::shared_ptr<Sequential> make_model(const std::string& scheme, int64_t features, int64_t classes) {
  const QuantSpec codes{.dtype = dtypes::int2, .scheme = scheme, .granularity = Granularity::channel(0)};
  const auto linear = [&](int64_t out) {
    return LayerSpec{.kind = "linear", .attributes = {{"out", out}, {"bias", false}}, .weight = {.quant = codes}};
  };
  const LayerSpec quantize{.kind = "quantize",
                           .activation = ActivationQuant{QuantSpec{.dtype = dtypes::int8, .scheme = scheme}}};
  return make_sequential({linear(64), {.kind = "batch_norm"}, {.kind = "relu"}, quantize, linear(classes)}, features);
}

bool train(const std::string& scheme, const Dataset& data, const Dataset& test) {
  Learner learner(
      make_model(scheme, data.features(), data.classes()), find_loss("softmax_cross_entropy"), {.name = "adam"},
      {.accumulate = 1, .every = 1}, [](int64_t) { return 5e-3f; }, /*seed=*/1);
  learner.plan(
      {.input = {.sample = {data.features()}}, .outputs = data.classes(), .train_samples = 50, .eval_samples = 250});
  const Evaluation before = evaluate(learner, test, /*batch=*/250);
  Loader loader(data, {.micro = 50, .seed = 1, .end_epoch = 6});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }
  const Evaluation after = evaluate(learner, test, /*batch=*/250);  // of the packed weights
  std::cout << learner.model().parameters()[0]->value().describe() << '\n';
  std::printf("%-13s loss %.3f before, %.3f after, accuracy %.1f %%\n", scheme.c_str(), before.loss, after.loss,
              after.accuracy);
  std::fflush(stdout);
  return after.loss < 0.5 * before.loss && after.accuracy > 60;
}

}  // namespace

int main() {
  rings::register_scheme();
  const auto data = make_dataset({.format = "digits", .size = 2000, .affine = {2, -1}});
  const auto test = make_dataset({.format = "digits", .split = "test", .size = 500, .affine = {2, -1}});

  bool fine = train("quantile_clip", *data, *test);
  fine = train("absmax", *data, *test) && fine;
  return fine ? 0 : 1;
}
