#include "bitgrad/data/loader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "bitgrad/base/rng.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;

// Sample i is {i, i + 0.5} with label i % 3; `bad` throws, `odd` has a label that is out of range.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t n) : n_(n) {}
  std::string name() const override { return "counting"; }
  int64_t size() const override { return n_; }
  std::vector<int64_t> sample_shape() const override { return shape; }
  int64_t classes() const override { return 3; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    if (index == bad) throw std::runtime_error("sample is broken");
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    x[0] = static_cast<float>(index);
    x[1] = static_cast<float>(index) + 0.5f;
    *label = index == odd ? 3 : static_cast<int32_t>(index % 3);
    ++calls;
  }
  int64_t bad = -1;
  int64_t odd = -1;
  std::vector<int64_t> shape{2};
  std::chrono::microseconds delay{0};
  mutable std::atomic<int64_t> calls{0};

 private:
  int64_t n_;
};

// What a batch says, as plain values.
struct Seen {
  int64_t epoch, position, size;
  bool last;
  std::vector<int64_t> ids;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen look(const Batch& batch) {
  Seen seen{batch.epoch, batch.position, batch.size, batch.last_of_epoch, {}};
  REQUIRE(batch.features == 2);
  for (int64_t i = 0; i < batch.size; ++i) {
    const int64_t id = batch.ids[i];
    REQUIRE(batch.x[2 * i] == static_cast<float>(id));
    REQUIRE(batch.x[2 * i + 1] == static_cast<float>(id) + 0.5f);
    REQUIRE(batch.labels[i] == id % 3);
    seen.ids.push_back(id);
  }
  return seen;
}

std::vector<Seen> stream_of(const Dataset& set, const LoaderOptions& options) {
  Loader loader(set, options);
  std::vector<Seen> all;
  Batch batch;
  while (loader.next(batch)) all.push_back(look(batch));
  return all;
}

LoaderOptions options_of(int64_t micro, int prefetch, int64_t end_epoch = 3) {
  LoaderOptions options;
  options.micro = micro;
  options.prefetch = prefetch;
  options.seed = 42;
  options.end_epoch = end_epoch;
  return options;
}

TEST_CASE("The order is this Fisher-Yates shuffle of 64-bit draws") {
  const RandomStream stream{9, Purpose::kShuffle, site_id("data.train"), 4};
  std::vector<int64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), int64_t{0});
  for (uint64_t i = 999; i >= 1; --i) {
    // The high half of a 64 x 64 bit product, by 32-bit parts.
    const PhiloxBlock block = stream.block(i);
    const uint64_t low = uint64_t{block[0]} * (i + 1);
    const uint64_t high = uint64_t{block[1]} * (i + 1) + (low >> 32);
    std::swap(expected[i], expected[high >> 32]);
  }
  std::vector<int64_t> order(1000);
  shuffled_order(9, 4, 1000, order.data());
  CHECK(order == expected);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  int64_t single = 5;
  shuffled_order(1, 0, 1, &single);
  CHECK(single == 0);
  shuffled_order(1, 0, 0, nullptr);
  CHECK(contains(error_of([&] { shuffled_order(1, -1, 1, &single); }), "epoch: got -1"));
  CHECK(contains(error_of([&] { shuffled_order(1, int64_t{1} << 32, 1, &single); }), "epoch: got 4294967296"));
}

TEST_CASE("Orders of three are uniform over seeds and differ between epochs") {
  std::array<int, 27> counts{};
  constexpr int kSeeds = 6000;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::array<int64_t, 3> order{};
    shuffled_order(seed, static_cast<int64_t>(seed % 5), 3, order.data());
    ++counts[static_cast<size_t>(order[0] * 9 + order[1] * 3 + order[2])];
  }
  int kinds = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++kinds;
    CHECK(std::abs(count - kSeeds / 6) < 180);  // six standard deviations
  }
  CHECK(kinds == 6);
  std::vector<int64_t> a(100);
  std::vector<int64_t> b(100);
  shuffled_order(1, 0, 100, a.data());
  shuffled_order(1, 1, 100, b.data());
  CHECK(a != b);
}

TEST_CASE("An epoch has floor(n / micro) full batches and one partial one") {
  for (const int64_t n : {1, 2, 7, 8, 9, 16, 17}) {
    const Counting set(n);
    for (const int64_t micro : {1, 2, 4, 8, 100}) {
      const std::vector<Seen> all = stream_of(set, options_of(micro, 2, 2));
      const int64_t per_epoch = (n + micro - 1) / micro;
      REQUIRE(all.size() == static_cast<size_t>(2 * per_epoch));
      std::vector<int64_t> order(static_cast<size_t>(n));
      for (size_t k = 0; k < all.size(); ++k) {
        const int64_t epoch = static_cast<int64_t>(k) / per_epoch;
        const int64_t position = static_cast<int64_t>(k) % per_epoch * micro;
        const int64_t size = std::min(micro, n - position);
        shuffled_order(42, epoch, n, order.data());
        const Seen expected{
            epoch, position, size, position + size == n, {order.begin() + position, order.begin() + position + size}};
        REQUIRE(all[k] == expected);
      }
    }
  }
}

TEST_CASE("Without shuffle the samples come in their own order in every epoch") {
  const Counting set(5);
  LoaderOptions options = options_of(2, 1, 2);
  options.shuffle = false;
  std::vector<int64_t> ids;
  for (const Seen& seen : stream_of(set, options)) ids.insert(ids.end(), seen.ids.begin(), seen.ids.end());
  CHECK(ids == std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
}

TEST_CASE("Reading ahead changes nothing that is read") {
  const Counting set(53);
  const std::vector<Seen> expected = stream_of(set, options_of(5, 0));
  for (const int prefetch : {1, 2, 3, 64}) CHECK(stream_of(set, options_of(5, prefetch)) == expected);
}

TEST_CASE("A stream that starts at any batch is the rest of the whole stream") {
  const Counting set(17);
  for (const int prefetch : {0, 2}) {
    const std::vector<Seen> whole = stream_of(set, options_of(4, prefetch));
    for (size_t k = 0; k < whole.size(); ++k) {
      LoaderOptions options = options_of(4, prefetch);
      options.epoch = whole[k].epoch;
      options.position = whole[k].position;
      const std::vector<Seen> rest = stream_of(set, options);
      CHECK(rest == std::vector<Seen>(whole.begin() + static_cast<std::ptrdiff_t>(k), whole.end()));
    }
  }
  // Between two batches: the samples of the epoch's order from there on.
  LoaderOptions options = options_of(4, 2, 1);
  options.position = 3;
  std::vector<int64_t> order(17);
  shuffled_order(42, 0, 17, order.data());
  std::vector<int64_t> ids;
  for (const Seen& seen : stream_of(set, options)) ids.insert(ids.end(), seen.ids.begin(), seen.ids.end());
  CHECK(ids == std::vector<int64_t>(order.begin() + 3, order.end()));
}

TEST_CASE("The loader reports where its next batch starts, however far ahead it has read") {
  const Counting set(10);
  Loader loader(set, options_of(4, 3));
  Batch batch;
  CHECK((loader.epoch() == 0 && loader.position() == 0));
  for (const int64_t position : {4, 8, 0, 4}) {
    REQUIRE(loader.next(batch));
    CHECK(loader.position() == position);
  }
  CHECK(loader.epoch() == 1);
  LoaderOptions options = options_of(4, 0);
  options.position = 10;
  Loader end(set, options);
  CHECK((end.epoch() == 1 && end.position() == 0));
}

TEST_CASE("At the end next returns false every time, and does not change the batch") {
  const Counting set(3);
  for (const int prefetch : {0, 2}) {
    Loader loader(set, options_of(2, prefetch, 1));
    Batch batch;
    CHECK(loader.next(batch));
    CHECK(loader.next(batch));
    const Seen last = look(batch);
    for (int k = 0; k < 3; ++k) CHECK_FALSE(loader.next(batch));
    CHECK(look(batch) == last);
    Loader none(set, options_of(2, prefetch, 0));
    CHECK_FALSE(none.next(batch));
  }
}

TEST_CASE("What a data set throws comes out at its batch and at every later call") {
  Counting set(20);
  set.bad = 13;
  LoaderOptions options = options_of(4, 0, 1);
  options.shuffle = false;
  for (const int prefetch : {0, 1, 8}) {
    options.prefetch = prefetch;
    Loader loader(set, options);
    Batch batch;
    for (int k = 0; k < 3; ++k) REQUIRE(loader.next(batch));
    const Seen last = look(batch);
    for (int k = 0; k < 2; ++k) CHECK_THROWS_AS(loader.next(batch), std::runtime_error);
    CHECK(look(batch) == last);
    CHECK((loader.epoch() == 0 && loader.position() == 12));
  }
}

TEST_CASE("A label out of range is a data error that names the sample") {
  Counting set(20);
  set.odd = 7;
  for (const int prefetch : {0, 2}) {
    LoaderOptions options = options_of(20, prefetch, 1);
    Batch batch;
    const auto read = [&] { Loader(set, options).next(batch); };
    CHECK(error_code_of(read) == static_cast<int>(ErrorCode::kData));
    CHECK(contains(error_of(read), "counting: label of sample 7: got 3, expected 0 .. 2"));
  }
}

TEST_CASE("Buffers are reused: memory is constant after the first batches, and all of it is given back") {
  const int64_t before = memory_now()[MemoryKind::kBatch];
  const Counting set(50);
  for (const int prefetch : {0, 2}) {
    {
      Loader loader(set, options_of(8, prefetch, 100));
      Batch batch;
      for (int k = 0; k < prefetch + 3; ++k) REQUIRE(loader.next(batch));
      const int64_t limit = before + (prefetch + 2) * (64 + 64 + 64);
      for (int k = 0; k < 300; ++k) {
        REQUIRE(loader.next(batch));
        REQUIRE(memory_now()[MemoryKind::kBatch] <= limit);
      }
    }
    CHECK(memory_now()[MemoryKind::kBatch] == before);
  }
}

TEST_CASE("A batch outlives its loader and moves with its memory") {
  const Counting set(4);
  Batch batch;
  {
    Loader loader(set, options_of(4, 2, 1));
    REQUIRE(loader.next(batch));
  }
  const Seen seen = look(batch);
  Batch other = std::move(batch);
  CHECK(look(other) == seen);
  CHECK(batch.x == nullptr);  // NOLINT: a moved-from batch is empty
  CHECK(batch.size == 0);
  const auto resize = [](Batch& b, int64_t samples, int64_t features) {
    b.resize(samples, {features}, dtypes::fp32, {.classes = 2});
  };
  resize(other, 2, 2);
  CHECK(other.size == 2);
  Batch large;
  resize(large, 100, 10);
  const int64_t bytes = memory_now()[MemoryKind::kBatch];
  resize(large, 1, 1);
  resize(large, 50, 20);
  CHECK(memory_now()[MemoryKind::kBatch] == bytes);  // room is kept
  CHECK(contains(error_of([&] { resize(other, int64_t{1} << 40, int64_t{1} << 40); }), "2^58"));
  CHECK(other.size == 2);
}

TEST_CASE("A loader stops cleanly at any time, also while the data set is slow") {
  Counting set(1000);
  set.delay = std::chrono::microseconds(200);
  for (int taken = 0; taken < 6; ++taken) {
    Loader loader(set, options_of(3, 2, -1));
    Batch batch;
    for (int k = 0; k < taken; ++k) REQUIRE(loader.next(batch));
  }
  // Batches of 3: those taken (0 .. 5), and two ahead. It never reads on.
  CHECK(set.calls <= 3 * (0 + 1 + 2 + 3 + 4 + 5 + 6 * 2));
}

TEST_CASE("Options out of range and empty data sets are errors before anything is read") {
  Counting set(10);
  const auto text = [&](auto change) {
    LoaderOptions options;
    change(options);
    return error_of([&] { Loader loader(set, options); });
  };
  CHECK(contains(text([](LoaderOptions& o) { o.micro = 0; }), "micro: got 0, expected 1 .. "));
  CHECK(contains(text([](LoaderOptions& o) { o.micro = -5; }), "micro: got -5"));
  CHECK(contains(text([](LoaderOptions& o) { o.prefetch = -1; }), "prefetch: got -1"));
  CHECK(contains(text([](LoaderOptions& o) { o.prefetch = 1025; }), "prefetch: got 1025"));
  CHECK(contains(text([](LoaderOptions& o) { o.position = 11; }), "position: got 11, expected 0 .. 10"));
  CHECK(contains(text([](LoaderOptions& o) { o.position = -1; }), "position: got -1"));
  CHECK(contains(text([](LoaderOptions& o) { o.epoch = -1; }), "epoch: got -1"));
  CHECK(contains(text([](LoaderOptions& o) { o.epoch = int64_t{1} << 32; }), "epoch: got 4294967296"));
  CHECK(contains(text([](LoaderOptions& o) { o.end_epoch = -2; }), "end_epoch: got -2"));
  CHECK(set.calls == 0);
  const Counting empty(0);
  CHECK(contains(error_of([&] { Loader loader(empty, {}); }), "samples in counting: got 0, expected 1 or more"));
  set.shape = {4, 0};
  CHECK(contains(error_of([&] { Loader loader(set, {}); }), "values in a sample of counting: got 0"));
}

// The same numbers and labels as they are stored.
class Stored final : public Dataset {
 public:
  std::string name() const override { return "stored"; }
  int64_t size() const override { return 11; }
  std::vector<int64_t> sample_shape() const override { return {2}; }
  int64_t classes() const override { return 3; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    x[0] = x[1] = 0.0f;
    *label = labels[static_cast<size_t>(index)];
    ++calls;
  }
  StoredSamples stored() const override { return {codes.data(), 22, 2, numbers.data(), labels.data()}; }
  std::array<uint8_t, 22> codes{};
  std::array<float, 256> numbers{};
  std::array<uint8_t, 11> labels{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1};
  mutable std::atomic<int64_t> calls{0};
};

TEST_CASE("Labels and ids alone are those of whole batches, and no sample is read") {
  const Stored set;
  for (const int prefetch : {0, 2}) {
    LoaderOptions options = options_of(4, prefetch);
    Loader whole(set, options);
    options.samples = false;
    Loader bare(set, options);
    Batch a, b;
    int64_t batches = 0;
    for (; whole.next(a); ++batches) {
      REQUIRE(bare.next(b));
      CHECK(b.features == 0);
      CHECK(b.dtype == dtypes::fp32);
      REQUIRE(b.size == a.size);
      CHECK(std::equal(a.ids, a.ids + a.size, b.ids));
      CHECK(std::equal(a.labels, a.labels + a.size, b.labels));
      CHECK(b.epoch == a.epoch);
      CHECK(b.position == a.position);
      CHECK(b.last_of_epoch == a.last_of_epoch);
    }
    CHECK(batches == 9);
    CHECK_FALSE(bare.next(b));
    const int64_t calls = set.calls;
    Loader again(set, options);
    while (again.next(b)) continue;
    CHECK(set.calls == calls);
  }
}

TEST_CASE("Labels alone are checked, and read only from a data set that reports how it is stored") {
  Stored odd;
  odd.labels[5] = 3;
  std::array<std::string, 2> errors;
  for (const bool samples : {false, true}) {
    LoaderOptions options = options_of(4, 0);
    options.samples = samples;
    Loader loader(odd, options);
    Batch batch;
    errors[samples ? 1 : 0] = error_of([&] {
      while (loader.next(batch)) continue;
    });
  }
  CHECK(contains(errors[0], "label of sample 5: got 3, expected 0 .. 2"));
  CHECK(errors[0] == errors[1]);
  const Counting counting(5);
  LoaderOptions options = options_of(4, 0);
  options.samples = false;
  CHECK(
      contains(error_of([&] { const Loader loader(counting, options); }),
               "counting: labels without samples were requested, but this data set does not report how it is stored"));
}

TEST_CASE("the samples that do not fill a batch are kept, dropped or joined") {
  const auto sizes = [](int64_t n, int64_t micro, LastBatch last, int prefetch) {
    const Counting set(n);
    LoaderOptions options = options_of(micro, prefetch, 2);
    options.last = last;
    std::vector<int64_t> all, of_epoch[2];
    for (const Seen& seen : stream_of(set, options)) {
      if (seen.epoch == 0) all.push_back(seen.size);
      CHECK(seen.last == (seen.position + seen.size == epoch_batches(n, micro, last).samples));
      for (const int64_t id : seen.ids) of_epoch[seen.epoch].push_back(id);
    }
    const EpochBatches batches = epoch_batches(n, micro, last);
    CHECK(batches.count == static_cast<int64_t>(all.size()));
    CHECK(batches.largest == *std::max_element(all.begin(), all.end()));
    CHECK(batches.least == *std::min_element(all.begin(), all.end()));
    for (std::vector<int64_t>& ids : of_epoch) {
      CHECK(static_cast<int64_t>(ids.size()) == batches.samples);
      std::sort(ids.begin(), ids.end());
      CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
    }
    return all;
  };
  using Sizes = std::vector<int64_t>;
  for (const int prefetch : {0, 2}) {
    CHECK(sizes(10, 4, LastBatch::kKeep, prefetch) == Sizes{4, 4, 2});
    CHECK(sizes(10, 4, LastBatch::kDrop, prefetch) == Sizes{4, 4});
    CHECK(sizes(10, 4, LastBatch::kJoin, prefetch) == Sizes{4, 6});
    CHECK(sizes(5, 4, LastBatch::kJoin, prefetch) == Sizes{5});
    for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop, LastBatch::kJoin}) {
      CHECK(sizes(8, 4, last, prefetch) == Sizes{4, 4});
      CHECK(sizes(3, 4, last, prefetch) == Sizes{3});
    }
  }
}

TEST_CASE("a loader that starts within an epoch continues like one that began it, for any last batch") {
  const Counting set(10);
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop, LastBatch::kJoin}) {
    LoaderOptions options = options_of(4, 0);
    options.last = last;
    const std::vector<Seen> all = stream_of(set, options);
    for (size_t i = 0; i < all.size(); ++i) {
      options.epoch = all[i].epoch;
      options.position = all[i].position;
      CHECK(stream_of(set, options) == std::vector<Seen>(all.begin() + static_cast<int64_t>(i), all.end()));
    }
  }
}

TEST_CASE("the shares of all ranks are the batches of one loader, and windows end at the same position on all") {
  const Counting set(10);
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop, LastBatch::kJoin})
    for (const auto& [size, window] : {std::pair<int64_t, int64_t>{2, 4}, {4, 4}, {3, 3}, {2, 6}})
      for (const int64_t batches : {1, 4, 5, 7, 12})
        for (const int prefetch : {0, 2}) {
          LoaderOptions options = options_of(3, prefetch);
          options.last = last;
          options.end_epoch = -1;
          std::vector<Seen> all, of_ranks(static_cast<size_t>(batches));
          std::vector<std::pair<int64_t, int64_t>> ends;  // epoch and position after each batch
          Loader one(set, options);
          Batch batch;
          for (int64_t b = 0; b < batches; ++b) {
            REQUIRE(one.next(batch));
            all.push_back(look(batch));
            ends.emplace_back(one.epoch(), one.position());
          }
          for (int64_t rank = 0; rank < size; ++rank) {
            options.share = {rank, size, window, batches};
            Loader own(set, options);
            const int64_t first = window * rank / size, each = window / size;
            for (int64_t b = 0; b < batches; ++b) {
              if (b % window < first || b % window >= first + each) continue;
              REQUIRE(own.next(batch));
              of_ranks[static_cast<size_t>(b)] = look(batch);
              const bool ended = b % window == first + each - 1;
              const int64_t at = ended ? std::min((b / window + 1) * window, batches) - 1 : b;
              CHECK(std::pair(own.epoch(), own.position()) == ends[static_cast<size_t>(at)]);
            }
            CHECK_FALSE(own.next(batch));
            CHECK(std::pair(own.epoch(), own.position()) == ends.back());
          }
          CHECK(of_ranks == all);
        }
  LoaderOptions options = options_of(3, 0);
  options.share = {2, 2, 4};
  CHECK(contains(error_of([&] { Loader(set, options); }),
                 "share: got rank 2 of 2, windows of 4 of -1 batches, expected a rank below the size"));
}

}  // namespace
}  // namespace bitgrad
