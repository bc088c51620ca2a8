// A table in CSV, a model of layers, a loss of one's own: trained with int4 weights, saved, and opened again.
#include <cstdio>
#include <fstream>

#include "bitgrad/bitgrad.h"

using namespace bitgrad;

namespace {

// A table with the columns x, y, inside: whether a point lies within the unit circle.
void write_table(const std::string& path, uint64_t seed, int64_t rows) {
  std::ofstream file(path);
  file << "x,y,inside\n";
  const RandomStream draws{seed, Purpose::kUser, site_id("points"), 0};
  for (int64_t i = 0; i < rows; ++i) {
    const float x = 3 * draws.uniform(static_cast<uint64_t>(2 * i)) - 1.5f;
    const float y = 3 * draws.uniform(static_cast<uint64_t>(2 * i + 1)) - 1.5f;
    file << x << ',' << y << ',' << (x * x + y * y < 1 ? "yes" : "no") << '\n';
  }
}

// The sum of the cross-entropies of a batch and a small penalty of large scores. The tape differentiates it.
Var regularized_cross_entropy(const Var& scores, const Tensor& target) {
  const Tensor small = Tensor::full(scores.shape(), dtypes::fp32, 0.01);
  return add(cross_entropy(scores, target, Reduction::kSum), sum(mul(small, mul(scores, scores))));
}

}  // namespace

int main() {
  write_table("train.csv", /*seed=*/1, 2000);
  write_table("test.csv", /*seed=*/2, 500);
  const auto table = [](const char* file) {
    return make_dataset({.format = "csv", .file = file, .keys = {{"target", std::string("inside")}}});
  };
  const auto train = table("train.csv"), test = table("test.csv");

  // Layers as in a configuration: what is made of such specs is recorded in the file, which every program can open.
  const QuantSpec int4{.dtype = dtypes::int4, .scheme = "symmetric", .granularity = Granularity::channel(0)};
  const auto layer = [&](int64_t out) {
    return LayerSpec{.kind = "linear", .attributes = {{"out", out}}, .weight = {.quant = int4}};
  };
  const auto model = make_sequential({layer(32), {.kind = "relu"}, layer(32), {.kind = "relu"}, layer(2)},
                                     /*in_features=*/train->features());
  // Adam; masters become codes after every step of one microbatch.
  Learner learner(
      model, regularized_cross_entropy, {.name = "adam"}, {.accumulate = 1, .every = 1}, [](int64_t) { return 0.01f; },
      /*seed=*/1);
  learner.plan({.input = {.sample = {train->features()}}, .outputs = 2, .train_samples = 50, .eval_samples = 250});

  Loader loader(*train, {.micro = 50, .seed = 1, .end_epoch = 20});
  Tensor x;
  double loss = 0;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);  // [50, 2] fp32
    const StepResult step = learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
    loss = step.loss / static_cast<double>(batch.size);
  }
  std::printf("loss of the last batch: %.3f\n", loss);

  const Evaluation result = evaluate(learner, *test, /*batch=*/250);
  std::printf("accuracy of %lld samples: %.1f %%\n", static_cast<long long>(result.samples), result.accuracy);

  save_checkpoint("points.safetensors", learner, /*counters=*/{}, /*config_yaml=*/"");  // with masters and moments
  const auto opened = open_model("points.safetensors", PredictionTask::kClasses);       // as bitgrad predict does
  const Tensor scores = opened->predict(Tensor::from({0.1f, 0.2f, 1.4f, -1.4f}, {2, 2}));
  std::printf("inside: %s, %s\n", scores.at({0, 1}) > scores.at({0, 0}) ? "yes" : "no",
              scores.at({1, 1}) > scores.at({1, 0}) ? "yes" : "no");
}
