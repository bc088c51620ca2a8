// Statistics of too few values: norms over one row.
#include <cmath>

#include "bitgrad/base/rng.h"
#include "bitgrad/data/memory_dataset.h"
#include "support/expect_error.h"
#include "train/small_runs.h"

namespace bitgrad::test {
namespace {

constexpr int64_t kFeatures = 8;

// Samples of 8 normal features of mean 1 and sd 3, in 3 classes.
struct NormalSamples {
  explicit NormalSamples(int64_t n) : n(n) {
    const RandomStream stream{3, Purpose::kInit, site_id("few"), 0};
    for (int64_t i = 0; i < n * kFeatures; ++i) x.push_back(1 + 3 * stream.normal(static_cast<uint64_t>(i)));
    for (int64_t i = 0; i < n; ++i) labels.push_back((at(i, 0) > 1) + (at(i, 1) > 1));
  }
  float at(int64_t i, int64_t feature) const { return x[static_cast<size_t>(i * kFeatures + feature)]; }
  std::unique_ptr<Dataset> set(const Shape& shape) const {
    MemoryDatasetSpec spec;
    spec.samples = {.shape = shape, .count = n, .data = x.data()};
    spec.targets = {.name = "labels", .stored = StoredAs::kInt32, .count = n, .data = labels.data()};
    spec.classes = 3;
    return make_memory_dataset(spec);
  }
  double unbiased_variance(int64_t feature) const {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) mean += static_cast<double>(at(i, feature)) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += std::pow(static_cast<double>(at(i, feature)) - mean, 2);
    return squares / static_cast<double>(n - 1);
  }
  int64_t n;
  std::vector<float> x;
  std::vector<int32_t> labels;
};

constexpr const char* kNorms = R"(version: 1
data: {train: {format: digits, size: 10}}
model: {layers: [batch_norm: {}, linear: {out: 32}, batch_norm: {}, relu: {}, linear: {out: 3}]}
batch: {global: 100, micro: 100}
optim: {name: adam, lr: 0.01}
train: {stop: 60 epochs}
)";

constexpr const char* kImageNorm = R"(version: 1
data: {train: {format: digits, size: 10}}
model: {layers: [conv2d: {out: 4, kernel: 1}, batch_norm: {}, flatten: {}, linear: {out: 3}]}
batch: {global: 100, micro: 100}
optim: {name: adam, lr: 0.01}
train: {stop: 60 epochs}
)";

Trainer trainer_of(const NormalSamples& samples, const std::vector<std::string>& overrides) {
  return Trainer(parse_config(kNorms, "norms.yaml", overrides), samples.set({kFeatures}), nullptr);
}

}  // namespace

TEST_CASE("a norm over one row is refused before the run, unless the last batch is dropped or joined") {
  const KeepModes modes;
  const NormalSamples samples(101);
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {}, {"batch.micro=1"}, {"batch.global=10", "batch.micro=10"}, {"batch.micro=1", "batch.last=drop"}}) {
    const std::string error = error_of([&] { trainer_of(samples, overrides); });
    INFO(error);
    CHECK(contains(error, "norms.yaml:3:"));
    CHECK(contains(error, "the variance of one value is not defined"));
    CHECK(contains(error, "batch.last: drop or join"));
  }
  // Images of one pixel have one row each, others more.
  const auto image_error = [&](const Shape& shape) {
    return error_of([&] { Trainer(parse_config(kImageNorm, "norm.yaml"), samples.set(shape), nullptr); });
  };
  CHECK(contains(image_error({1, 1, kFeatures}), "the variance of one value is not defined"));
  CHECK(image_error({2, 2, 2}).empty());
  for (const char* last : {"drop", "join"}) {
    Trainer trainer = trainer_of(samples, {concat("batch.last=", last)});
    trainer.run("", {});
    const Module::Buffer variance = trainer.learner().model().buffers()[1];
    REQUIRE(variance.path == "layers.0.running_var");
    for (int64_t j = 0; j < kFeatures; ++j)
      CHECK(std::abs(static_cast<double>(variance.tensor.as<float>()[j]) / samples.unbiased_variance(j) - 1) < 0.1);
  }
}

TEST_CASE(
    "a norm that keeps its statistics takes one row, and a later phase that needs more is refused before the run") {
  const KeepModes modes;
  const NormalSamples samples(11);
  const auto error = [&](const std::string& more) {
    return error_of([&] {
      trainer_of(samples, {"batch.global=10", "batch.micro=1", "train.stop=4 steps", more}).run("", {});
    });
  };
  CHECK(error("train.frozen=[layers.0, layers.2]").empty());
  CHECK(error("quant.phases=[{from: 0 steps, norm_statistics: false}]").empty());
  CHECK(contains(error("train.frozen=[layers.0]"), "[batch_norm] a training batch of 1 sample gives"));
  const std::string later = error("quant.phases=[{from: 0 steps, norm_statistics: false}, {from: 2 steps}]");
  INFO(later);
  CHECK(contains(later, "a training batch of 1 sample gives each statistic one value"));
  CHECK(contains(later, "[phases] phase 1 (from step 2): layer 0: [batch_norm]"));
}

}  // namespace bitgrad::test
