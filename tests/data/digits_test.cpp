#include "data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using data::kDigitPixels;
using test::contains;
using test::error_code_of;
using test::error_of;
using Pixels = std::array<uint8_t, kDigitPixels>;

DatasetSpec digits(int64_t size, const char* split = "train", uint64_t seed = 1) {
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = size;
  spec.split = split;
  spec.seed = seed;
  return spec;
}

// All samples and labels of a set.
std::vector<float> content(const Dataset& set) {
  const size_t features = static_cast<size_t>(set.features());
  std::vector<float> all(static_cast<size_t>(set.size()) * (features + 1));
  for (size_t i = 0; i < static_cast<size_t>(set.size()); ++i) {
    int32_t label = -1;
    set.sample(static_cast<int64_t>(i), all.data() + i * (features + 1), &label);
    all[i * (features + 1) + features] = static_cast<float>(label);
  }
  return all;
}

uint32_t hash_of(uint64_t seed, uint32_t split, int64_t first, int64_t count) {
  uint32_t hash = 0;
  Pixels pixels;
  for (int64_t i = first; i < first + count; ++i) {
    const uint8_t label = static_cast<uint8_t>(data::draw_digit(seed, split, i, pixels.data()));
    hash = crc32c(pixels.data(), pixels.size(), hash);
    hash = crc32c(&label, 1, hash);
  }
  return hash;
}

TEST_CASE("Digits are these very bytes on every machine") {
  CHECK(hash_of(1, 0, 0, 64) == 0xB6739EC1u);
  CHECK(hash_of(1, 1, 0, 64) == 0x5E147BA0u);
  CHECK(hash_of(0xFEDCBA9876543210u, 0, 1000000, 16) == 0x2D5398AEu);
}

TEST_CASE("Every class has several glyphs of points inside the box") {
  for (int label = 0; label < data::kDigitClasses; ++label) {
    const std::vector<data::Glyph>& glyphs = data::digit_glyphs(label);
    CHECK(glyphs.size() >= 3);
    for (const data::Glyph& glyph : glyphs) {
      CHECK_FALSE(glyph.empty());
      for (const data::Stroke& stroke : glyph) {
        CHECK(stroke.size() >= 2);
        for (const data::Point p : stroke) CHECK((p.x >= -0.5f && p.x <= 0.5f && p.y >= -0.5f && p.y <= 0.5f));
      }
    }
  }
}

TEST_CASE("A digit depends on seed, split and index, and on nothing else") {
  Pixels a;
  Pixels b;
  const int label = data::draw_digit(5, 0, 17, a.data());
  b.fill(77);
  CHECK(data::draw_digit(5, 0, 17, b.data()) == label);
  CHECK(a == b);
  data::draw_digit(6, 0, 17, b.data());
  CHECK(a != b);
  data::draw_digit(5, 1, 17, b.data());
  CHECK(a != b);
  data::draw_digit(5, 0, 18, b.data());
  CHECK(a != b);
}

TEST_CASE("A smaller set is the beginning of a larger one, for any number of threads") {
  const int threads = num_threads();
  set_num_threads(1);
  const std::vector<float> one = content(*make_dataset(digits(1000)));
  for (const int n : {2, 4}) {
    set_num_threads(n);
    CHECK(content(*make_dataset(digits(1000))) == one);
  }
  set_num_threads(threads);
  for (const int64_t size : {1, 63, 64, 65, 999}) {
    const std::vector<float> part = content(*make_dataset(digits(size)));
    REQUIRE(part.size() == static_cast<size_t>(size * (kDigitPixels + 1)));
    CHECK(std::equal(part.begin(), part.end(), one.begin()));
  }
  CHECK(content(*make_dataset(digits(64, "train", 2))) != content(*make_dataset(digits(64))));
  CHECK(content(*make_dataset(digits(64, "test"))) != content(*make_dataset(digits(64))));
}

TEST_CASE("Labels are uniform, images are distinct, and each holds ink on a dark ground") {
  constexpr int kImages = 4000;
  for (const uint32_t split : {0u, 1u}) {
    std::array<int, 10> counts{};
    std::set<uint32_t> hashes;
    for (int i = 0; i < kImages; ++i) {
      Pixels pixels;
      const int label = data::draw_digit(3, split, i, pixels.data());
      REQUIRE((label >= 0 && label <= 9));
      ++counts[static_cast<size_t>(label)];
      hashes.insert(crc32c(pixels.data(), pixels.size()));
      const auto ink = std::count_if(pixels.begin(), pixels.end(), [](uint8_t p) { return p >= 128; });
      INFO("image " << i << " label " << label);
      REQUIRE(ink >= 10);
      REQUIRE(ink <= kDigitPixels / 3);
    }
    // Six standard deviations of a binomial count with p = 1/10.
    for (const int count : counts) CHECK(std::abs(count - kImages / 10) < 6.0 * std::sqrt(kImages * 0.09));
    CHECK(hashes.size() >= kImages - 1);  // a 32-bit hash may collide once
  }
}

TEST_CASE("Nearest class means separate digits somewhat, not fully") {
  const auto train = make_dataset(digits(3000));
  const auto test_set = make_dataset(digits(1000, "test"));
  std::vector<double> means(10 * kDigitPixels);
  std::array<double, 10> counts{};
  std::vector<float> x(kDigitPixels);
  int32_t label = 0;
  for (int64_t i = 0; i < train->size(); ++i) {
    train->sample(i, x.data(), &label);
    counts[static_cast<size_t>(label)] += 1.0;
    for (size_t k = 0; k < x.size(); ++k)
      means[static_cast<size_t>(label) * kDigitPixels + k] += static_cast<double>(x[k]);
  }
  int hits = 0;
  for (int64_t i = 0; i < test_set->size(); ++i) {
    test_set->sample(i, x.data(), &label);
    std::array<double, 10> distances{};
    for (size_t c = 0; c < 10; ++c) {
      for (size_t k = 0; k < x.size(); ++k) {
        const double d = static_cast<double>(x[k]) - means[c * kDigitPixels + k] / counts[c];
        distances[c] += d * d;
      }
    }
    hits += std::min_element(distances.begin(), distances.end()) - distances.begin() == label ? 1 : 0;
  }
  CHECK(hits > 550);
  CHECK(hits < 850);
}

TEST_CASE("The data set states its shape, classes and memory") {
  const int64_t before = memory_now()[MemoryKind::kDataset];
  {
    const auto set = make_dataset(digits(10, "test"));
    CHECK(set->name() == "digits (test)");
    CHECK(set->size() == 10);
    CHECK(set->sample_shape() == std::vector<int64_t>{28, 28});
    CHECK(set->features() == 784);
    CHECK(set->classes() == 10);
    CHECK(set->memory_bytes() == 10 * 785);
    CHECK(memory_now()[MemoryKind::kDataset] == before + 10 * 785);
  }
  CHECK(memory_now()[MemoryKind::kDataset] == before);
}

TEST_CASE("A size, split or number of classes that digits cannot have is an error") {
  const int usage = static_cast<int>(ErrorCode::kUsage);
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 40}) {
    CHECK(error_code_of([&] { make_dataset(digits(size)); }) == usage);
    CHECK(contains(error_of([&] { make_dataset(digits(size)); }), "size: got " + std::to_string(size)));
  }
  CHECK(contains(error_of([&] { make_dataset(digits(1, "validation")); }), "got 'validation', expected train or test"));
  DatasetSpec spec = digits(1);
  spec.classes = 7;
  CHECK(contains(error_of([&] { make_dataset(spec); }), "classes: got 7, expected 10"));
}

}  // namespace
}  // namespace bitgrad
