// Parts of a data set's samples, drawn by a seed.
#include "data/split_samples.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/samples.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using data::split_indices;
using data::SplitPart;

TEST_CASE("a split is a function of the seed: the smallest draws are one part, the others the rest") {
  for (const int64_t n : {2, 3, 10, 997}) {
    for (const double fraction : {0.001, 0.1, 0.5, 0.999}) {
      INFO(n << " samples, fraction " << fraction);
      const auto valid = split_indices(n, fraction, 7, SplitPart::kValid),
                 train = split_indices(n, fraction, 7, SplitPart::kTrain);
      const RandomStream stream{7, Purpose::kShuffle, site_id("data.valid"), 0};
      std::vector<int64_t> all(static_cast<size_t>(n));
      std::iota(all.begin(), all.end(), int64_t{0});
      std::sort(all.begin(), all.end(), [&](int64_t a, int64_t b) {
        return stream.bits64(static_cast<uint64_t>(a)) < stream.bits64(static_cast<uint64_t>(b));
      });
      const auto count = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
      std::vector<int64_t> expected(all.begin(), all.begin() + count);
      std::sort(expected.begin(), expected.end());
      CHECK(valid == expected);
      std::vector<int64_t> both(valid);
      both.insert(both.end(), train.begin(), train.end());
      std::sort(both.begin(), both.end());
      std::sort(all.begin(), all.end());
      CHECK(both == all);
      CHECK(std::is_sorted(train.begin(), train.end()));
    }
  }
  CHECK(split_indices(997, 0.1, 7, SplitPart::kValid) != split_indices(997, 0.1, 8, SplitPart::kValid));
  CHECK(error_of([] { split_indices(1, 0.5, 1, SplitPart::kValid); }) ==
        "[data] data.valid.fraction: got 1 sample of data.train, expected at least 2 to split.");
}

namespace {

// The examples of a part against those of the whole set.
void check_part(const std::shared_ptr<const Dataset>& all, SplitPart part, bool stored) {
  const auto indices = split_indices(all->size(), 0.3, 3, part);
  const auto some = data::split_samples(all, 0.3, 3, part);
  REQUIRE(some->size() == std::ssize(indices));
  CHECK(some->epoch_order().samples == some->size());
  CHECK(some->sample_shape() == all->sample_shape());
  CHECK(some->target_form() == all->target_form());
  CHECK((some->stored().codes != nullptr) == stored);
  const size_t n = static_cast<size_t>(all->features());
  const size_t targets = static_cast<size_t>(all->target_form().shape.numel());
  std::vector<int32_t> x(n), y(n), s(targets), t(targets);  // 4 bytes an element, whatever they hold
  for (int64_t i = 0; i < some->size(); ++i) {
    some->example(i, x.data(), s.data());
    all->example(indices[static_cast<size_t>(i)], y.data(), t.data());
    CHECK((x == y && s == t));
  }
  CHECK(contains(error_of([&] { some->example(some->size(), x.data(), s.data()); }), "sample index: got "));
}

}  // namespace

TEST_CASE("the samples of a part are those of the whole set, as bytes, values and ids, stored or made") {
  std::vector<uint8_t> bytes(11 * 12), labels(11 * 3);
  std::vector<float> values(11 * 12), numbers(11 * 3);
  std::vector<uint16_t> ids(11 * 12);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 37), ids[i] = static_cast<uint16_t>(i * 5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7.0f;
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<uint8_t>(i % 5), numbers[i] = -static_cast<float>(i);
  MemoryDatasetSpec spec;
  spec.normalize = {{0.1f, 0.2f, 0.3f}, {1.0f, 2.0f, 3.0f}};
  for (const SplitPart part : {SplitPart::kTrain, SplitPart::kValid}) {
    spec.samples = {"images", StoredAs::kUint8, {2, 2, 3}, 11, bytes.data()};
    spec.targets = {"positions", StoredAs::kUint8, {3}, 11, labels.data()};
    check_part(make_memory_dataset(spec), part, true);
    MemoryDatasetSpec floats;
    floats.samples = {"values", StoredAs::kFloat, {12}, 11, values.data()};
    floats.targets = {"values", StoredAs::kFloat, {3}, 11, numbers.data()};
    check_part(make_memory_dataset(floats), part, true);
    floats.affine = {2.0f, 1.0f};
    check_part(make_memory_dataset(floats), part, false);
    floats.affine = {1.0f, 0.0f};
    floats.samples = {"ids", StoredAs::kUint16, {12}, 11, ids.data()};
    floats.vocabulary = 1000;
    check_part(make_memory_dataset(floats), part, true);
    check_part(make_dataset({.format = "digits", .size = 11}), part, true);
  }
}
