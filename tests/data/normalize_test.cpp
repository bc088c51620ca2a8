// Normalization of pixels: (p/255 - mean[c]) / std[c], each operation rounded once.
#include <fstream>
#include <limits>

#include "bitgrad/data/dataset.h"
#include "data/image_dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

// By double, whose quotients, differences and sums of floats round to the same fp32 as the exact ones.
float normalized(uint8_t p, float mean, float std) {
  const auto unit = static_cast<float>(static_cast<double>(p) / 255.0);
  const auto centred = static_cast<float>(static_cast<double>(unit) - static_cast<double>(mean));
  return static_cast<float>(static_cast<double>(centred) / static_cast<double>(std));
}

// Two samples of [8, 16, channels]: all bytes, in every channel.
std::unique_ptr<data::ImageDataset> byte_ramp(int64_t channels, const Normalization& normalize) {
  DatasetSpec spec;
  spec.normalize = normalize;
  TrackedBytes pixels(256 * channels, MemoryKind::kDataset), labels(2, MemoryKind::kDataset);
  for (int64_t i = 0; i < 256 * channels; ++i) pixels.data()[i] = static_cast<uint8_t>(i / channels + i % channels);
  labels.data()[0] = labels.data()[1] = 0;
  std::vector<int64_t> shape{8, 16};
  if (channels > 1) shape.push_back(channels);
  return std::make_unique<data::ImageDataset>("ramp", shape, 1, data::PixelValues(spec), std::move(pixels),
                                              std::move(labels));
}

TEST_CASE("A normalized pixel is its formula, with one number or one per channel") {
  const std::vector<float> mean{0.485f, 0.456f, 0.406f}, std{0.229f, 0.224f, 0.225f};
  const struct {
    int64_t channels;
    Normalization normalize;
  } cases[] = {
      {3, {mean, std}}, {3, {{0.5f}, std}}, {3, {mean, {0.25f}}}, {1, {{0.1307f}, {0.3081f}}}, {2, {{0.0f}, {1e-6f}}}};
  for (const auto& c : cases) {
    const auto set = byte_ramp(c.channels, c.normalize);
    const StoredSamples stored = set->stored();
    CHECK(stored.tables == c.channels);
    const auto entry = [](const std::vector<float>& all, int64_t channel) {
      return all.size() == 1 ? all[0] : all[static_cast<size_t>(channel)];
    };
    std::vector<float> x(static_cast<size_t>(128 * c.channels));
    bool same = true;
    for (int64_t s = 0; s < 2; ++s) {
      int32_t label = -1;
      set->sample(s, x.data(), &label);
      for (int64_t i = 0; i < 128 * c.channels; ++i) {
        const int64_t channel = i % c.channels, at = s * 128 * c.channels + i;
        const float expected = normalized(static_cast<uint8_t>(at / c.channels + channel),
                                          entry(c.normalize.mean, channel), entry(c.normalize.std, channel));
        same = same && x[static_cast<size_t>(i)] == expected;
        same = same && stored.numbers[channel * 256 + static_cast<const uint8_t*>(stored.codes)[at]] == expected;
      }
    }
    CHECK(same);
  }
}

TEST_CASE("idx images of bytes and of floats are normalized") {
  const test::TempDir folder;
  const auto write = [&](const std::string& name, std::vector<uint8_t> head, const std::vector<uint8_t>& elements) {
    head.insert(head.end(), elements.begin(), elements.end());
    std::ofstream(folder.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(head.data()), static_cast<std::streamsize>(head.size()));
  };
  write("l", test::idx_header({1}), {3});
  write("i", test::idx_header({1, 1, 2}), {0, 200});
  write("f", test::idx_header({1, 1, 1, 2}, 0x0D), {0x3f, 0x00, 0, 0, 0x40, 0x40, 0, 0});  // 0.5, 3
  DatasetSpec spec;
  spec.format = "idx";
  spec.root = folder.path();
  spec.images = "i";
  spec.labels = "l";
  spec.normalize = {{0.1307f}, {0.3081f}};
  std::vector<float> x(2);
  int32_t label = 0;
  make_dataset(spec)->sample(0, x.data(), &label);
  CHECK(x == std::vector<float>{normalized(0, 0.1307f, 0.3081f), normalized(200, 0.1307f, 0.3081f)});
  spec.images = "f";
  spec.normalize = {{0.25f, 1.0f}, {2.0f, 4.0f}};
  make_dataset(spec)->sample(0, x.data(), &label);
  CHECK(x == std::vector<float>{0.125f, 0.5f});
  spec.images = "i";
  CHECK(error_of([&] { make_dataset(spec); }) ==
        "[data] normalize.mean: got 2 entries, expected 1 for images of 1 channel.");
}

TEST_CASE("What normalize cannot use is reported") {
  const auto wrong = [](const Normalization& normalize) { return error_of([&] { byte_ramp(3, normalize); }); };
  CHECK(wrong({{0.5f}, {0.5f}}) == "");
  CHECK(wrong({{0.5f, 0.5f}, {0.5f}}) ==
        "[data] normalize.mean: got 2 entries, expected 1 or 3 for images of 3 channels.");
  CHECK(contains(wrong({{0.5f}, {1, 1, 1, 1}}), "normalize.std: got 4 entries, expected 1 or 3"));
  CHECK(contains(wrong({{}, {0.5f}}), "normalize.mean: got no entry"));
  CHECK(contains(wrong({{0.5f}, {}}), "normalize.std: got no entry"));
  CHECK(contains(wrong({{0.5f}, {0.5f, 0.0f, 1.0f}}), "normalize.std: got 0, expected a finite number above 0."));
  CHECK(contains(wrong({{std::numeric_limits<float>::infinity()}, {1}}), "normalize.mean: got inf"));
  DatasetSpec both;
  both.format = "digits";
  both.size = 1;
  both.affine = {2, -1};
  both.normalize = {{0.5f}, {0.5f}};
  CHECK(error_of([&] { make_dataset(both); }) == "[data] got both affine and normalize, expected one of them.");
}

}  // namespace
}  // namespace bitgrad
