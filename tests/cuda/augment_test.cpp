// Crops, mirror images and values per channel on the (emulated) device have the bits of the loader.
#include <algorithm>
#include <random>

#include "cuda/both.h"
#include "cuda/feed_support.h"
#include "data/image_dataset.h"
#include "train/batch_feed.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Images of bytes with four classes, normalized per channel.
std::unique_ptr<data::ImageDataset> normalized_images(const std::vector<int64_t>& shape, int64_t count) {
  const int64_t channels = shape.size() == 3 ? shape[2] : 1;
  const int64_t features = shape[0] * shape[1] * channels;
  DatasetSpec spec;
  for (int64_t c = 0; c < channels; ++c) {
    spec.normalize.mean.push_back(0.5f - 0.07f * static_cast<float>(c));
    spec.normalize.std.push_back(0.2f + 0.03f * static_cast<float>(c));
  }
  const std::vector<uint8_t> bytes = some_words<uint8_t>(count * features, static_cast<uint32_t>(features));
  TrackedBytes pixels(count * features, MemoryKind::kDataset), labels(count, MemoryKind::kDataset);
  std::copy(bytes.begin(), bytes.end(), pixels.data());
  for (int64_t i = 0; i < count; ++i) labels.data()[i] = static_cast<uint8_t>(i * 7 % 4);
  return std::make_unique<data::ImageDataset>("images", shape, 4, data::PixelValues(spec), std::move(pixels),
                                              std::move(labels));
}

}  // namespace

TEST_CASE("Augmented batches are the same from the loader and gathered from data on the device") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  const struct {
    std::vector<int64_t> shape;
    int64_t count, micro;
    Augment augment;
  } cases[] = {{{32, 32, 3}, 21, 8, {4, true}}, {{28, 28}, 9, 4, {2, false}}, {{5, 7, 3}, 13, 13, {0, true}},
               {{3, 3, 2}, 7, 2, {5, true}},    {{1, 1}, 3, 1, {1, true}},    {{6, 5, 3}, 11, 4, {}}};
  for (const auto& c : cases) {
    const auto data = normalized_images(c.shape, c.count);
    RunConfig config = small_config(on("cuda"), kNet);
    config.layers.back().attributes["out"] = data->classes();
    const auto learner = build_learner(config, *data);
    const detail::ResidentData resident(*data);
    LoaderOptions options;
    options.micro = c.micro;
    options.seed = 77;
    options.end_epoch = 4;
    options.position = c.count / 2;
    options.augment = c.augment;
    for (const bool there : {false, true}) {
      INFO(c.shape[0] << " x " << c.shape[1] << ", pad " << c.augment.crop_pad << ", resident " << there);
      Loader loader(*data, options);
      detail::BatchFeed feed(*learner, *data, options, there ? &resident : nullptr);
      Batch batch;
      while (loader.next(batch)) {
        REQUIRE(feed.next());
        device_backend(gpu()).synchronize();
        Tensor x;
        {
          const DeviceGuard host(Device::cpu());
          copy_batch(batch, x);
        }
        CHECK(difference(x, feed.x().on_host()) == "");
        const Tensor labels = feed.target().on_host();
        CHECK(std::equal(batch.labels, batch.labels + batch.size, labels.as<int32_t>()));
      }
      CHECK_FALSE(feed.next());
    }
  }
}

TEST_CASE("An augmented run has one state, on the CPU, with batches copied ahead, and with data on the device") {
  const KeepModes keep;
  const Keys keys = {"~data.affine", "data.normalize={mean: [0.13], std: [0.31]}",
                     "data.train.augment={crop_pad: 2, flip: true}", "batch.micro=5"};
  const TrainOutcome cpu = run_all(small_config(on("cpu", keys), kNet));
  Keys plain = keys;
  plain.erase(plain.begin() + 2);
  CHECK(run_all(small_config(on("cpu", plain), kNet)).state_hash != cpu.state_hash);
  for (const char* resident : {"false", "true"}) {
    Keys there = on("cuda", keys);
    there.push_back(concat("device.resident_data=", resident));
    const TrainOutcome cuda = run_all(small_config(there, kNet));
    CHECK(cuda.state_hash == cpu.state_hash);
    CHECK(cuda.evaluation->loss == cpu.evaluation->loss);
  }
}
