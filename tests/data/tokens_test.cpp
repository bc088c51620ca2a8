// Token files: windows of a text and of stored ids, in every order, against the ids themselves.
#include <cstring>
#include <fstream>
#include <set>

#include "bitgrad/base/rng.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/data/tokenizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string shard_of(int32_t magic, int32_t version, int32_t count, const std::string& ids) {
  std::vector<int32_t> head(256);
  head[0] = magic;
  head[1] = version;
  head[2] = count;
  return bytes_of(head) + ids;
}

DatasetSpec tokens_spec(const std::string& file, int64_t context, const std::string& order = "") {
  DatasetSpec spec;
  spec.format = "tokens";
  spec.file = file;
  spec.context = context;
  spec.whole = true;
  if (!order.empty()) spec.keys["order"] = order;
  return spec;
}
DatasetSpec text_spec(const std::string& file, int64_t context, const std::string& order = "") {
  DatasetSpec spec = tokens_spec(file, context, order);
  spec.tokenizer = "chars";
  return spec;
}
DatasetSpec ids_spec(const std::string& file, int64_t context, const std::string& stored, int64_t vocabulary) {
  DatasetSpec spec = tokens_spec(file, context);
  spec.keys["stored"] = stored;
  spec.keys["vocabulary"] = vocabulary;
  return spec;
}

std::vector<int32_t> counting(int64_t n, int32_t modulus = 1000) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * 7 + i / 11) % modulus));
  return ids;
}

// Every sample of a set whose windows lie `stride` apart.
void check_windows(const Dataset& set, const std::vector<int32_t>& ids, int64_t context, int64_t stride, int64_t size) {
  REQUIRE(set.size() == size);
  CHECK(set.sample_shape() == std::vector<int64_t>{context});
  CHECK(set.target_form().shape == Shape{context});
  std::vector<int32_t> x(static_cast<size_t>(context)), target(x), want_x(x), want(x);
  const auto n = std::ssize(ids);
  for (int64_t i = 0; i < size; ++i) {
    set.example(i, x.data(), target.data());
    for (int64_t c = 0; c < context; ++c) {
      const int64_t at = i * stride + c;
      want_x[static_cast<size_t>(c)] = at + 1 < n ? ids[static_cast<size_t>(at)] : 0;
      want[static_cast<size_t>(c)] = at + 1 < n ? ids[static_cast<size_t>(at + 1)] : kIgnoredClass;
    }
    CHECK(x == want_x);
    CHECK(target == want);
  }
}

const std::string kText = "no plan survives contact with the enemy; 12 \xe2\x82\xac or \xc3\xa9";

}  // namespace

TEST_CASE("Windows of a text are where the order requires, and the rest of a text is read in order only") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, kText);
  const auto tokenizer = make_tokenizer("chars", kText);
  const std::vector<int32_t> ids = encode(*tokenizer, kText);
  const int64_t n = std::ssize(ids);
  for (const int64_t context : {int64_t{1}, int64_t{2}, int64_t{7}, n - 2, n - 1}) {
    INFO("context " << context << " of " << n);
    const auto random = make_dataset(text_spec(file, context, "random"));
    check_windows(*random, ids, context, 1, n - context);
    CHECK(random->epoch_order().kind == EpochOrder::Kind::kRandom);
    CHECK(random->epoch_order().samples == (n - 1) / context);
    const auto shuffled = make_dataset(text_spec(file, context));
    check_windows(*shuffled, ids, context, context, (n - 1) / context);
    CHECK(shuffled->epoch_order().kind == EpochOrder::Kind::kShuffled);
    const auto ordered = make_dataset(text_spec(file, context, "sequential"));
    check_windows(*ordered, ids, context, context, (n - 1 + context - 1) / context);
    CHECK(ordered->epoch_order().kind == EpochOrder::Kind::kSequential);
  }
  const auto set = make_dataset(text_spec(file, 5));
  CHECK(set->name() == file);
  CHECK(set->vocabulary() == tokenizer->vocabulary());
  CHECK(set->classes() == tokenizer->vocabulary());
  CHECK(set->memory_bytes() == n);
  CHECK(set->tokenizer()->decode(ids) == kText);
  // Of the targets: all ids but the first, which is one byte.
  CHECK(set->target_form().bytes_per_target == static_cast<double>(kText.size() - 1) / static_cast<double>(n - 1));
}

TEST_CASE("What is stored in memory is what examples give") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, kText);
  for (const std::string order : {"random", "shuffled", "sequential"}) {
    const auto set = make_dataset(text_spec(file, 5, order));
    const StoredSamples stored = set->stored();
    CHECK((stored.codes == nullptr) == (order == "sequential"));  // 48 targets do not divide by 5
    if (stored.codes == nullptr) continue;
    std::vector<int32_t> x(5), target(5);
    for (int64_t i = 0; i < set->size(); ++i) {
      set->example(i, x.data(), target.data());
      for (int64_t c = 0; c < 5; ++c) {
        CHECK(static_cast<const uint8_t*>(stored.codes)[i * stored.stride + c] == x[static_cast<size_t>(c)]);
        CHECK(static_cast<const uint8_t*>(stored.labels)[i * stored.target_stride + c] ==
              target[static_cast<size_t>(c)]);
      }
    }
  }
}

TEST_CASE("Splits of a file share no target, and test is read in order") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, kText);
  const std::vector<int32_t> ids = encode(*make_tokenizer("chars", kText), kText);
  const auto cut = static_cast<int64_t>(static_cast<double>(ids.size()) * 0.75);
  DatasetSpec spec = text_spec(file, 4);
  spec.whole = false;
  spec.test_fraction = 0.25;
  const auto train = make_dataset(spec);
  check_windows(*train, {ids.begin(), ids.begin() + cut}, 4, 4, (cut - 1) / 4);
  CHECK(train->name() == file + " (train)");
  spec.split = "test";
  const auto test = make_dataset(spec);
  check_windows(*test, {ids.begin() + cut, ids.end()}, 4, 4, (std::ssize(ids) - cut - 1 + 3) / 4);
  CHECK(test->vocabulary() == train->vocabulary());
}

TEST_CASE("A text is read by the characters of another one") {
  const TempDir folder;
  write(folder.file("train.txt"), "abcdef");
  write(folder.file("test.txt"), "fed");
  write(folder.file("other.txt"), "fedup");
  DatasetSpec spec = text_spec(folder.file("test.txt"), 2);
  spec.vocabulary_file = folder.file("train.txt");
  const auto set = make_dataset(spec);
  CHECK(set->vocabulary() == 6);
  check_windows(*set, {5, 4, 3}, 2, 2, 1);
  spec.file = folder.file("other.txt");
  CHECK(contains(error_of([&] { make_dataset(spec); }),
                 "[data.tokens] " + spec.file + ": [chars] byte 3: character 'u' does not occur in the text"));
}

TEST_CASE("Ids of more characters than a byte counts are held in two, of more than two bytes count in four") {
  const TempDir folder;
  for (const int32_t characters : {256, 257, 65537}) {
    std::string text;
    for (int32_t i = 0; i < characters; ++i) {
      const auto point = static_cast<uint32_t>(i + 0x10000);
      for (const int shift : {18, 12, 6, 0})
        text += static_cast<char>((shift == 18 ? 0xF0u : 0x80u) | ((point >> shift) & 0x3Fu));
    }
    write(folder.file("a.txt"), text);
    const auto set = make_dataset(text_spec(folder.file("a.txt"), 3));
    CHECK(set->vocabulary() == characters);
    CHECK(set->memory_bytes() == characters * (characters == 256 ? 1 : characters == 257 ? 2 : 4));
    int32_t x[3], target[3];
    set->example(set->size() - 1, x, target);
    const auto last = static_cast<int32_t>((set->size() - 1) * 3);
    CHECK((x[0] == last && x[2] == last + 2 && target[0] == last + 1 && target[2] == last + 3));
  }
}

TEST_CASE("Stored ids of nanoGPT and llm.c are read by position, none of them in memory") {
  const TempDir folder;
  const std::vector<int32_t> ids = counting(2100, 60000);
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  const auto n = static_cast<int32_t>(ids.size());
  const std::string file = folder.file("a.bin");
  const std::vector<std::pair<std::string, std::string>> files = {{"uint16", bytes_of(narrow)},
                                                                  {"uint32", bytes_of(ids)},
                                                                  {"shard", shard_of(20240520, 1, n, bytes_of(narrow))},
                                                                  {"shard", shard_of(20240801, 7, n, bytes_of(ids))}};
  for (const auto& [stored, bytes] : files)
    for (const int64_t context : {int64_t{1}, int64_t{64}, int64_t{1023}, int64_t{1500}}) {
      INFO(stored << ' ' << context);
      write(file, bytes);
      DatasetSpec spec = ids_spec(file, context, stored, 60000);
      const auto set = make_dataset(spec);
      check_windows(*set, ids, context, context, (n - 1) / context);
      CHECK(set->memory_bytes() == 0);
      CHECK(set->stored().codes == nullptr);
      CHECK(set->tokenizer() == nullptr);
      CHECK(set->target_form().bytes_per_target == 0);
      spec.split = "test";
      check_windows(*make_dataset(spec), ids, context, context, (n - 1 + context - 1) / context);
      spec.whole = false;
      spec.test_fraction = 0.5;
      check_windows(*make_dataset(spec), {ids.begin() + n / 2, ids.end()}, context, context,
                    (n / 2 - 1 + context - 1) / context);
    }
}

TEST_CASE("Files of ids of another length than declared, and ids past the vocabulary, are errors with numbers") {
  const TempDir folder;
  const std::string file = folder.file("a.bin");
  const auto error = [&](const std::string& bytes, const std::string& stored, int64_t vocabulary = 10) {
    write(file, bytes);
    return error_of([&] { make_dataset(ids_spec(file, 2, stored, vocabulary)); });
  };
  const std::string four = bytes_of(std::vector<uint16_t>{1, 2, 3, 4});
  CHECK(contains(error(four + "x", "uint16"), file + ": got 9 bytes, expected a multiple of 2, the bytes of an id."));
  CHECK(
      contains(error(four, "shard"), ": stored: shard: got a file that begins with 0, 0, expected a header of llm.c"));
  CHECK(contains(error(shard_of(20240520, 7, 4, four), "shard"), "begins with 20240520, 7"));
  for (const int32_t count : {3, 5, -1, 2147483647})
    CHECK(contains(error(shard_of(20240520, 1, count, four), "shard"),
                   "the header counts " + std::to_string(count) + " ids"));
  CHECK(contains(error(four, "uint16", 0), "vocabulary: got none, expected the number of different ids"));
  CHECK(contains(error("", "uint16"), "got 0 ids, expected at least 3 for context = 2"));
  write(file, four);
  const auto set = make_dataset(ids_spec(file, 3, "uint16", 4));
  int32_t x[3], target[3];
  CHECK(contains(error_of([&] { set->example(0, x, target); }), file + ": id 3: got 4, expected 0 .. 3 (vocabulary)."));
  CHECK(contains(error_of([&] { set->example(1, x, target); }), "sample index: got 1, expected 0 .. 0."));
  DatasetSpec both = ids_spec(file, 2, "uint16", 9);
  both.tokenizer = "chars";
  CHECK(contains(error_of([&] { make_dataset(both); }), "tokenizer: got chars for a file stored as uint16"));
  both.tokenizer = "bytes";
  CHECK(
      contains(error_of([&] { make_dataset(both); }), "vocabulary: got 9, expected at least 256 for tokenizer bytes"));
  CHECK(
      contains(error_of([&] { make_dataset(tokens_spec(file, 2)); }), "tokenizer: got none, expected one for a text"));
  both.keys["stored"] = "text";
  CHECK(contains(error_of([&] { make_dataset(both); }), "vocabulary: got 9, tokenizer bytes has 256."));
  both.file = folder.file("none.bin");
  CHECK(contains(error_of([&] { make_dataset(both); }), "no such file"));
}

TEST_CASE("A loader draws the samples of an epoch anew where the order is random, and can begin anywhere") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, kText);
  const auto set = make_dataset(text_spec(file, 5, "random"));
  const int64_t each = set->epoch_order().samples;
  REQUIRE(each == 9);
  LoaderOptions options;
  options.micro = 4;
  options.seed = 11;
  std::vector<int64_t> all, places;
  Batch batch;
  Loader loader(*set, options);
  for (int i = 0; i < 9; ++i) {
    REQUIRE(loader.next(batch));
    CHECK(batch.size == (i % 3 == 2 ? 1 : 4));
    CHECK(batch.counted == batch.size * 5);
    all.insert(all.end(), batch.ids, batch.ids + batch.size);
    for (int64_t r = 0; r < batch.size; ++r) {
      int32_t x[5], target[5];
      set->example(batch.ids[r], x, target);
      CHECK(std::equal(x, x + 5, batch.tokens + r * 5));
      CHECK(std::equal(target, target + 5, batch.labels + r * 5));
    }
  }
  for (int64_t i = 0; i < 27; ++i)
    CHECK(all[static_cast<size_t>(i)] == drawn_sample(11, i / each, i % each, set->size()));
  for (int64_t i = 0; i < 27; ++i) {
    const RandomStream draws{11, Purpose::kSample, site_id("data.train"), static_cast<uint32_t>(i / each)};
    const auto n = static_cast<uint64_t>(set->size());
    const auto high =
        static_cast<int64_t>((static_cast<unsigned __int128>(draws.bits64(static_cast<uint64_t>(i % each))) * n) >> 64);
    CHECK(all[static_cast<size_t>(i)] == high);
  }
  CHECK(*std::max_element(all.begin(), all.end()) > each);  // not those of the first `samples` alone
  options.epoch = 1;
  options.position = 4;
  Loader again(*set, options);
  REQUIRE(again.next(batch));
  CHECK(std::equal(batch.ids, batch.ids + 4, all.begin() + 13));
  options.shuffle = false;
  options.epoch = 0;
  options.position = 0;
  Loader plain(*set, options);
  REQUIRE(plain.next(batch));
  CHECK((batch.ids[0] == 0 && batch.ids[3] == 3));
  int64_t batches = 1;
  for (; plain.epoch() == 0; ++batches) REQUIRE(plain.next(batch));
  CHECK(batches == (set->size() + 3) / 4);
  // Every sample is drawn sooner or later, each about as often.
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 600; ++i) seen.insert(drawn_sample(3, 0, i, set->size()));
  CHECK(std::ssize(seen) == set->size());
}

TEST_CASE("Positions of a shorter last sample do not count") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, "abcdefgh");
  const auto set = make_dataset(text_spec(file, 5, "sequential"));
  LoaderOptions options;
  options.micro = 2;
  Batch batch;
  Loader loader(*set, options);
  REQUIRE(loader.next(batch));
  CHECK(batch.size == 2);
  CHECK(batch.counted == 7);
  CHECK(std::vector<int32_t>(batch.labels, batch.labels + 10) ==
        std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, kIgnoredClass, kIgnoredClass, kIgnoredClass});
}

TEST_CASE("The first samples of tokens keep the order, with as many in an epoch at most") {
  const TempDir folder;
  const std::string file = folder.file("a.txt");
  write(file, kText);
  DatasetSpec spec = text_spec(file, 5, "random");
  for (const int64_t limit : {3, 20}) {
    spec.limit = limit;
    const auto set = make_dataset(spec);
    CHECK(set->size() == limit);
    CHECK(set->epoch_order().kind == EpochOrder::Kind::kRandom);
    CHECK(set->epoch_order().samples == std::min<int64_t>(limit, 9));
    CHECK(set->tokenizer() != nullptr);
  }
}
