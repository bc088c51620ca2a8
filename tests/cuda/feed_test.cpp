// A feed alone: the loader's batches on the (emulated) device, read ahead, from the host and from data that lie there.
#include <algorithm>
#include <array>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "cuda/both.h"
#include "cuda/feed_support.h"
#include "data/image_dataset.h"
#include "support/label_loss.h"
#include "train/batch_feed.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Images of `features` bytes with four classes.
std::unique_ptr<data::ImageDataset> images(int64_t count, int64_t features, uint32_t seed) {
  const std::vector<uint8_t> bytes = some_words<uint8_t>(count * features, seed);
  TrackedBytes pixels(count * features, MemoryKind::kDataset), labels(count, MemoryKind::kDataset);
  std::copy(bytes.begin(), bytes.end(), pixels.data());
  for (int64_t i = 0; i < count; ++i) labels.data()[i] = static_cast<uint8_t>(i * 7 % 4);
  return std::make_unique<data::ImageDataset>("images", std::vector<int64_t>{features}, 4,
                                              std::array<float, 2>{0.37f, -0.11f}, std::move(pixels),
                                              std::move(labels));
}

std::unique_ptr<Learner> learner_for(const Dataset& data) {
  RunConfig config = small_config(on("cuda"), data.vocabulary() > 0 ? kText : kNet);
  config.layers.back().attributes["out"] = data.classes();
  return build_learner(config, data);
}

}  // namespace

TEST_CASE("The next batch is read while a microbatch runs, and no further") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  const Brittle data;
  const auto learner = learner_for(data);
  LoaderOptions options;
  options.micro = 4;
  options.prefetch = 0;
  Brittle::reads = 0;
  {
    detail::BatchFeed feed(*learner, data, options);
    REQUIRE(feed.next());
    CHECK(Brittle::reads == 4);
    learner->microbatch(feed.x(), feed.target(), feed.counted());
    CHECK(Brittle::reads == 8);
    learner->evaluate(feed.x(), feed.target(), feed.counted());
    CHECK(Brittle::reads == 8);
    REQUIRE(feed.next());
    CHECK(Brittle::reads == 8);
    learner->evaluate(feed.x(), feed.target(), feed.counted());
    CHECK(Brittle::reads == 12);
    {
      detail::BatchFeed inner(*learner, data, options);
      REQUIRE(inner.next());
      learner->predict(inner.x());
      CHECK(Brittle::reads == 20);
    }
    learner->predict(feed.x());
    CHECK(Brittle::reads == 20);
    CHECK(feed.position() == 8);
  }
  learner->predict(host_numbers({2, 3}, 1).to_device(gpu(), MemoryKind::kBatch));
  CHECK(Brittle::reads == 20);
}

TEST_CASE("A feed gives the loader's batches of any size, from the host and from the device") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  const TextFile text;
  struct Case {
    std::shared_ptr<Dataset> data;
    int64_t micro;
  };
  std::vector<Case> cases;
  for (const auto& [count, features, micro] :
       {std::array<int64_t, 3>{12, 1, 5}, {12, 3, 12}, {12, 4, 13}, {7, 5, 1}, {1, 17, 4}, {33, 63, 8}, {9, 784, 2}})
    cases.push_back({images(count, features, static_cast<uint32_t>(features)), micro});
  const RunConfig config = small_config({text.root()}, kText);
  cases.push_back({open_dataset(config, config.data.train), 11});
  for (const Case& c : cases) {
    const auto learner = learner_for(*c.data);
    const detail::ResidentData resident(*c.data);
    LoaderOptions options;
    options.micro = c.micro;
    options.seed = 3;
    options.end_epoch = 3;
    options.position = c.data->size() / 2;
    for (const bool there : {false, true}) {
      INFO(c.data->features() << " features, micro " << c.micro << ", resident " << there);
      Loader loader(*c.data, options);
      detail::BatchFeed feed(*learner, *c.data, options, there ? &resident : nullptr);
      Batch batch;
      while (loader.next(batch)) {
        REQUIRE(feed.next());
        if (batch.position % 2 == 0) learner->predict(feed.x());  // the next one is fetched ahead, or on demand
        device_backend(gpu()).synchronize();
        Tensor x;
        {
          const DeviceGuard host(Device::cpu());
          copy_batch(batch, x);
        }
        CHECK(difference(x, feed.x().on_host()) == "");
        const Tensor labels = feed.target().on_host();
        REQUIRE(labels.numel() == batch.size);
        CHECK(std::equal(batch.labels, batch.labels + batch.size, labels.as<int32_t>()));
        CHECK(feed.epoch() == loader.epoch());
        CHECK(feed.position() == loader.position());
      }
      CHECK_FALSE(feed.next());
      CHECK_FALSE(feed.next());
    }
  }
}

TEST_CASE("A loss of a program trains and evaluates on fed batches as the built-in one does") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  const auto data = images(22, 9, 1);
  const detail::ResidentData resident(*data);
  const auto numbers_of = [&](LossFunction loss, const detail::ResidentData* there) {
    Learner learner(
        make_linear(9, 4, {}), std::move(loss), OptimizerSpec{}, RequantPolicy{}, [](int64_t) { return 0.1f; }, 1);
    learner.plan({.input = {.sample = {9}}, .outputs = 4, .train_samples = 5, .eval_samples = 5});
    learner.set_recorded(true);
    LoaderOptions options;
    options.micro = 5;
    options.end_epoch = 3;
    std::vector<double> seen;
    detail::BatchFeed feed(learner, *data, options, there);
    while (feed.next()) {
      const StepResult trained = learner.microbatch(feed.x(), feed.target(), feed.counted());
      const StepResult measured = learner.evaluate(feed.x(), feed.target(), feed.counted());
      seen.insert(seen.end(), {trained.loss, measured.loss, static_cast<double>(trained.correct),
                               static_cast<double>(measured.correct)});
    }
    return seen;
  };
  const auto of_host = [](const Var& logits, const Tensor& labels) {
    const Tensor host = labels.on_host();
    return label_loss(logits, {host.as<int32_t>(), static_cast<size_t>(host.numel())});
  };
  const std::vector<double> expected = numbers_of(find_loss("softmax_cross_entropy"), nullptr);
  CHECK(expected.size() == 3 * 5 * 4);
  CHECK(numbers_of(find_loss("softmax_cross_entropy"), &resident) == expected);
  CHECK(numbers_of(of_host, nullptr) == expected);
  CHECK(numbers_of(of_host, &resident) == expected);
}

TEST_CASE("A microbatch with labels of its own leaves the feed's alone") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  const auto data = images(12, 3, 2);
  const auto learner = learner_for(*data);
  LoaderOptions options;
  options.micro = 4;
  detail::BatchFeed feed(*learner, *data, options);
  REQUIRE(feed.next());
  learner->microbatch(feed.x(), feed.target(), feed.counted());
  const std::vector<double> labels = feed.target().elements();
  learner->microbatch(feed.x(), std::vector<int32_t>{3, 3, 3, 3});
  CHECK(feed.target().elements() == labels);
  CHECK(labels != std::vector<double>(4, 3.0));
}

TEST_CASE("A data set that reports a contradiction is refused before anything is copied") {
  const DeviceGuard guard(gpu());
  struct Wrong final : Dataset {
    std::string name() const override { return "wrong"; }
    int64_t size() const override { return 3; }
    std::vector<int64_t> sample_shape() const override { return {4}; }
    int64_t classes() const override { return 2; }
    int64_t vocabulary() const override { return words; }
    StoredSamples stored() const override { return said; }
    StoredSamples said;
    int64_t words = 0;
  };
  const std::array<uint8_t, 12> codes{};
  const std::array<float, 256> numbers{};
  Wrong data;
  const auto refused = [&](StoredSamples said) {
    data.said = said;
    return error_of([&] { const detail::ResidentData resident(data); });
  };
  CHECK(refused({codes.data(), 12, 4, numbers.data(), codes.data()}) == "");
  CHECK(contains(refused({codes.data(), 11, 4, numbers.data(), codes.data()}),
                 "got 11 bytes and a stride of 4, expected at least 12 bytes for 3 samples of 4"));
  CHECK(contains(refused({codes.data(), 12, -1, numbers.data(), codes.data()}), "a stride of -1"));
  CHECK(contains(refused({codes.data(), 12, 4, nullptr, codes.data()}), "are ids, the data set returns fp32"));
  CHECK(contains(refused({}), "does not report how it is stored"));
  CHECK(contains(refused({codes.data(), 12, 4, numbers.data(), nullptr}), "does not report how it is stored"));
  data.words = 5;
  CHECK(
      contains(refused({codes.data(), 12, 4, numbers.data(), codes.data()}), "are values, the data set returns int32"));
}
