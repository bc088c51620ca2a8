// Random crops and mirror images against a reference written from docs/numerics.md section 7: the padded image is made,
// cropped and mirrored.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "bitgrad/base/rng.h"
#include "bitgrad/data/loader.h"
#include "data/image_dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;
using Bytes = std::vector<uint8_t>;

constexpr uint64_t kAugmentSeed = 0x1234567890abcdefull;

struct Pictures {
  std::vector<int64_t> shape;
  int64_t rows, columns, channels;
  Bytes bytes;
  data::PixelValues values{std::array<float, 2>{2.0f, -1.0f}};
  std::unique_ptr<data::ImageDataset> set;
};

Pictures pictures(const std::vector<int64_t>& shape, int64_t count, bool normalized = false) {
  Pictures p{shape, shape[0], shape[1], shape.size() == 3 ? shape[2] : 1, {}, {{2.0f, -1.0f}}, nullptr};
  std::mt19937 random(static_cast<uint32_t>(shape[0] * 7 + shape[1]));
  p.bytes.resize(static_cast<size_t>(count * p.rows * p.columns * p.channels));
  for (uint8_t& byte : p.bytes) byte = static_cast<uint8_t>(random());
  TrackedBytes pixels(std::ssize(p.bytes), MemoryKind::kDataset), labels(count, MemoryKind::kDataset);
  std::copy(p.bytes.begin(), p.bytes.end(), pixels.data());
  for (int64_t i = 0; i < count; ++i) labels.data()[i] = static_cast<uint8_t>(i % 5);
  if (normalized) {
    p.values.affine = {1.0f, 0.0f};
    for (int64_t c = 0; c < p.channels; ++c) {
      p.values.normalize.mean.push_back(0.3f + 0.1f * static_cast<float>(c));
      p.values.normalize.std.push_back(0.2f + 0.05f * static_cast<float>(c));
    }
  }
  p.set = std::make_unique<data::ImageDataset>("pictures", shape, 5, p.values, std::move(pixels), std::move(labels));
  return p;
}

// x of sample `index` in `epoch`, by the words of its block.
std::vector<float> expected_of(const Pictures& p, const Augment& augment, int64_t epoch, int64_t index) {
  const PhiloxBlock w =
      philox4x32_10({static_cast<uint32_t>(index), 13u << 24, crc32c("data.train", 10), static_cast<uint32_t>(epoch)},
                    {static_cast<uint32_t>(kAugmentSeed), static_cast<uint32_t>(kAugmentSeed >> 32)});
  const int64_t pad = augment.crop_pad, c = p.channels, wide = p.columns + 2 * pad;
  const auto dy = static_cast<int64_t>((uint64_t{w[0]} * static_cast<uint64_t>(2 * pad + 1)) >> 32);
  const auto dx = static_cast<int64_t>((uint64_t{w[1]} * static_cast<uint64_t>(2 * pad + 1)) >> 32);
  Bytes padded(static_cast<size_t>((p.rows + 2 * pad) * wide * c), 0);
  for (int64_t y = 0; y < p.rows; ++y)
    std::copy_n(p.bytes.data() + (index * p.rows + y) * p.columns * c, p.columns * c,
                padded.data() + ((y + pad) * wide + pad) * c);
  std::vector<float> x;
  for (int64_t y = 0; y < p.rows; ++y) {
    std::vector<Bytes> row;
    for (int64_t i = 0; i < p.columns; ++i) {
      const auto from = padded.begin() + ((y + dy) * wide + i + dx) * c;
      row.emplace_back(from, from + c);
    }
    if (augment.flip && w[2] >= 0x80000000u) std::reverse(row.begin(), row.end());
    for (const Bytes& pixel : row)
      for (int64_t k = 0; k < c; ++k) {
        const float unit = static_cast<float>(pixel[static_cast<size_t>(k)]) / 255.0f;
        if (!p.values.normalize.given()) {
          const float scaled = 2.0f * unit;
          x.push_back(scaled + -1.0f);
        } else {
          const float centred = unit - p.values.normalize.mean[static_cast<size_t>(k)];
          x.push_back(centred / p.values.normalize.std[static_cast<size_t>(k)]);
        }
      }
  }
  return x;
}

using Augmented = std::map<std::pair<int64_t, int64_t>, std::vector<float>>;
Augmented read_augmented(const Pictures& p, const Augment& augment, int64_t micro, int prefetch, int64_t epoch = 0,
                         int64_t position = 0) {
  LoaderOptions options;
  options.micro = micro;
  options.prefetch = prefetch;
  options.seed = kAugmentSeed;
  options.epoch = epoch;
  options.position = position;
  options.end_epoch = 3;
  options.augment = augment;
  Loader loader(*p.set, options);
  Augmented samples;
  for (Batch b; loader.next(b);)
    for (int64_t i = 0; i < b.size; ++i) {
      CHECK(b.labels[i] == b.ids[i] % 5);
      samples[{b.epoch, b.ids[i]}] = std::vector<float>(b.x + i * b.features, b.x + (i + 1) * b.features);
    }
  return samples;
}

TEST_CASE("Crops and mirror images equal the padded image, cropped and mirrored") {
  struct Case {
    std::vector<int64_t> shape;
    Augment augment;
    bool normalized = false;
  };
  const std::vector<Case> cases = {{{32, 32, 3}, {4, true}, true}, {{32, 32, 3}, {4, true}},
                                   {{28, 28}, {2, false}, true},   {{5, 9}, {0, true}},
                                   {{7, 3, 2}, {1, true}},         {{3, 4, 1}, {9, true}, true},
                                   {{1, 1, 4}, {1, true}, true},   {{6, 6, 5}, {3, false}}};
  for (const Case& c : cases) {
    INFO(c.shape[0] << " x " << c.shape[1] << ", pad " << c.augment.crop_pad << ", flip " << c.augment.flip);
    const Pictures p = pictures(c.shape, 61, c.normalized);
    const Augmented seen = read_augmented(p, c.augment, 8, 2);
    CHECK(seen.size() == 3 * 61);
    bool same = true;
    for (const auto& [key, x] : seen) same = same && x == expected_of(p, c.augment, key.first, key.second);
    CHECK(same);
  }
}

TEST_CASE("Augmented samples do not depend on batches, prefetching or where a run begins") {
  const Pictures p = pictures({6, 5, 3}, 29, true);
  const Augment augment{2, true};
  const Augmented all = read_augmented(p, augment, 4, 2);
  for (const int64_t micro : {1, 7, 29})
    for (const int prefetch : {0, 3}) CHECK(read_augmented(p, augment, micro, prefetch) == all);
  for (const auto& [key, x] : read_augmented(p, augment, 5, 1, 1, 13)) CHECK(all.at(key) == x);
  CHECK(all.at({0, 3}) != all.at({1, 3}));  // anew in each epoch
  CHECK(read_augmented(p, {}, 4, 2) != all);
  for (const auto& [key, x] : read_augmented(p, {}, 4, 2)) {
    std::vector<float> plain(x.size());
    int32_t label = 0;
    p.set->sample(key.second, plain.data(), &label);
    CHECK(x == plain);
  }
}

TEST_CASE("All places of a crop are drawn, and half of the images are mirrored") {
  // One white pixel in the middle of 1 x 9 shows where it went.
  TrackedBytes pixels(9 * 4000, MemoryKind::kDataset), labels(4000, MemoryKind::kDataset);
  for (int64_t i = 0; i < 4000; ++i) {
    labels.data()[i] = 0;
    for (int64_t k = 0; k < 9; ++k) pixels.data()[i * 9 + k] = static_cast<uint8_t>(k == 4 ? 255 : k == 3 ? 100 : 1);
  }
  const data::ImageDataset set("dots", {1, 9}, 1, std::array<float, 2>{1, 0}, std::move(pixels), std::move(labels));
  LoaderOptions options;
  options.micro = 100;
  options.end_epoch = 1;
  options.augment = {2, true};
  Loader loader(set, options);
  std::map<int64_t, int> places;
  int mirrored = 0, empty = 0;
  for (Batch b; loader.next(b);)
    for (int64_t i = 0; i < b.size; ++i) {
      const float* const x = b.x + i * 9;
      const auto at = std::max_element(x, x + 9) - x;
      if (x[at] == 0.0f) {  // the row is a pad
        ++empty;
        continue;
      }
      ++places[at];
      mirrored += x[at - 1] < x[at + 1];
    }
  CHECK(std::abs(empty - 3200) < 5 * 26);
  REQUIRE(places.size() == 5);
  CHECK(places.begin()->first == 2);
  for (const auto& [place, count] : places) CHECK(std::abs(count - 160) < 5 * 13);
  CHECK(std::abs(mirrored - 400) < 5 * 15);
}

TEST_CASE("Transforms come after augmentation") {
  const Pictures p = pictures({4, 4}, 9);
  LoaderOptions options;
  options.micro = 9;
  options.seed = kAugmentSeed;
  options.end_epoch = 1;
  options.augment = {1, true};
  options.transforms = {make_transform("noise", {{"sd", 0.5}})};
  Loader loader(*p.set, options);
  Batch b;
  REQUIRE(loader.next(b));
  for (int64_t i = 0; i < 9; ++i) {
    std::vector<float> x = expected_of(p, options.augment, 0, b.ids[i]);
    options.transforms[0]->apply(transform_stream(kAugmentSeed, 0, 0), b.ids[i], Shape{4, 4}, x.data());
    CHECK(std::vector<float>(b.x + i * 16, b.x + (i + 1) * 16) == x);
  }
}

TEST_CASE("Data that are not images of bytes cannot be augmented, and a pad has its range") {
  const auto refused = [](const Dataset& set, const Augment& augment) {
    return error_of([&] {
      LoaderOptions options;
      options.augment = augment;
      const Loader loader(set, options);
    });
  };
  const Pictures p = pictures({4, 4}, 3);
  CHECK(refused(*p.set, {1024, false}) == "");
  CHECK(refused(*p.set, {1025, false}) == "[data.train.augment] crop_pad: got 1025, expected 0 .. 1024 pixels.");
  CHECK(contains(refused(*p.set, {-1, true}), "crop_pad: got -1"));
  TrackedBytes pixels(12, MemoryKind::kDataset), labels(3, MemoryKind::kDataset);
  std::fill_n(labels.data(), 3, uint8_t{0});
  std::fill_n(pixels.data(), 12, uint8_t{0});
  const data::ImageDataset vectors("vectors", {4}, 1, std::array<float, 2>{1, 0}, std::move(pixels), std::move(labels));
  CHECK(refused(vectors, {1, false}) ==
        "[data.train.augment] vectors: got samples of shape [4], expected images of shape [rows, columns] or [rows, "
        "columns, channels].");
  TrackedBytes floats(3 * 4 * 4, MemoryKind::kDataset), classes(3, MemoryKind::kDataset);
  std::fill_n(classes.data(), 3, uint8_t{0});
  const data::ImageDataset values("values", {2, 2}, std::array<float, 2>{1, 0}, std::move(floats), StoredAs::kFloat,
                                  {std::move(classes), StoredAs::kUint8, {.shape = {}, .classes = 1}});
  CHECK(contains(refused(values, {1, false}), "values: got values of fp32, expected images of bytes"));
}

}  // namespace
}  // namespace bitgrad
