// Statistics of too few values: norms over one row.
#include <cmath>

#include "bitgrad/base/rng.h"
#include "bitgrad/data/samples.h"
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
    "a norm that keeps its statistics accepts one row, and a later phase that needs more is refused before the run") {
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

TEST_CASE("a layer that starts at zero learns in every scheme that has 0 inside its codes") {
  const KeepModes modes;
  for (const char* weights :
       {"{dtype: uint4, scheme: lsq_plus}", "{dtype: uint2, scheme: lsq_plus, granularity: channel}",
        "{dtype: int1, scheme: lsq_plus}", "{dtype: int4, scheme: lsq_plus}", "{dtype: int2, scheme: lsq}",
        "{dtype: uint4, scheme: dorefa_weight}", "{dtype: uint4, scheme: affine}", "{dtype: int4, scheme: absmax}"}) {
    INFO(weights);
    std::string quant = weights;
    quant.insert(quant.size() - 1, ", init: zeros");
    const NormalSamples samples(24);
    Trainer trainer = trainer_of(samples, {"model.layers=[linear: {out: 3, bias: false, weights: " + quant + "}]",
                                           "batch={global: 12}", "train.stop=6 steps"});
    trainer.run("", {});
    double largest = 0, step = 0;
    for (const Parameter* p : trainer.learner().model().parameters())
      for (const double v : p->master().elements()) {
        double& most = p->path().ends_with(".step") ? step : largest;
        most = std::max(most, std::abs(v));
      }
    CHECK(largest > 1e-3);
    CHECK((step == 0 || step > 0x1p-19));
  }
}

}  // namespace bitgrad::test
