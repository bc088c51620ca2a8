// Shards of ids: patterns of names, what NAME.tokens.json says of them, and windows that overlap.
#include <fstream>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/tokenizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write_shard(const std::string& path, const std::vector<uint16_t>& ids) {
  std::vector<int32_t> head(256);
  head[0] = 20240520;
  head[1] = 1;
  head[2] = static_cast<int32_t>(ids.size());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(head.data()), 1024);
  file.write(reinterpret_cast<const char*>(ids.data()), std::ssize(ids) * 2);
}

DatasetSpec shards(const TempDir& temp, const std::string& file, int64_t context) {
  DatasetSpec spec;
  spec.format = "tokens";
  spec.root = temp.path();
  spec.file = file;
  spec.context = context;
  spec.whole = true;
  spec.keys["stored"] = "shard";
  spec.keys["order"] = "sequential";
  return spec;
}

// The targets that count, in order.
std::vector<int32_t> targets_of(const Dataset& data) {
  std::vector<int32_t> all;
  const int64_t context = data.features();
  for (int64_t i = 0; i < data.size(); ++i) {
    std::vector<int32_t> x(static_cast<size_t>(context)), target(x.size());
    data.example(i, x.data(), target.data());
    for (size_t t = 0; t < x.size(); ++t) {
      if (target[t] == kIgnoredClass) continue;
      if (t + 1 < x.size() && target[t + 1] != kIgnoredClass) CHECK(x[t + 1] == target[t]);
      all.push_back(target[t]);
    }
  }
  return all;
}

struct Packed {
  Packed() {
    write_shard(temp.file("set_train_000000.bin"), {0, 1, 2, 0, 1});
    write_shard(temp.file("set_train_000001.bin"), {2});
    write_shard(temp.file("set_train_000002.bin"), {1, 1, 0, 2});
    write_shard(temp.file("set_val_000000.bin"), {2, 1, 0});
    record = {{"format_version", 1}, {"tokenizer", tokenizer_record(*make_tokenizer("chars", "ab\xe2\x82\xac"))}};
    std::ofstream(temp.file("set.tokens.json")) << record.dump();
  }
  TempDir temp;
  Json record;
};

}  // namespace

TEST_CASE("Shards that a pattern names are one row of ids") {
  const Packed set;
  for (const std::string pattern : {"set_train_*.bin", "set_train_00000?.bin", "*train*"}) {
    const auto data = make_dataset(shards(set.temp, pattern, 4));
    CHECK(targets_of(*data) == std::vector<int32_t>{1, 2, 0, 1, 2, 1, 1, 0, 2});
    CHECK(data->memory_bytes() == 0);
  }
  CHECK(targets_of(*make_dataset(shards(set.temp, "set_train_000002.bin", 4))) == std::vector<int32_t>{1, 0, 2});
  DatasetSpec split = shards(set.temp, "set_train_*.bin", 2);
  split.whole = false;
  split.test_fraction = 0.4;
  split.split = "test";
  CHECK(targets_of(*make_dataset(split)) == std::vector<int32_t>{1, 0, 2});
  CHECK(contains(error_of([&] { make_dataset(shards(set.temp, "no_*.bin", 4)); }),
                 "no_*.bin': got no file, expected at least one that fits no_*.bin"));
  CHECK(contains(error_of([&] { make_dataset(shards(set.temp, "none/*.bin", 4)); }), "got no file"));
}

TEST_CASE("Shards know the tokenizer that made them, and how many bytes their ids are") {
  const Packed set;
  const auto data = make_dataset(shards(set.temp, "set_train_*.bin", 4));
  REQUIRE(data->tokenizer() != nullptr);
  CHECK(describe(*data->tokenizer()) == "chars of 3 ids");
  CHECK(data->vocabulary() == 3);
  CHECK(data->target_form().bytes_per_target ==
        (6 * 1 + 3 * 3) / 9.0);  // three characters of three bytes among nine targets
  DatasetSpec same = shards(set.temp, "set_train_*.bin", 4);
  same.tokenizer = "chars";
  CHECK(make_dataset(same)->vocabulary() == 3);
  same.tokenizer = "set.tokens.json";
  CHECK(make_dataset(same)->vocabulary() == 3);
  same.keys["vocabulary"] = 8;  // more than the tokenizer has: rows of a table that no id reads
  CHECK(make_dataset(same)->vocabulary() == 8);
  same.keys["vocabulary"] = 2;
  CHECK(contains(error_of([&] { make_dataset(same); }), "vocabulary: got 2, expected at least 3 for tokenizer chars"));
}

TEST_CASE("Documents are read apart by the id that ends them, which shards name, or a key") {
  Packed set;
  const auto end_of = [&](const std::string& documents, int64_t end, int64_t limit = 0) {
    DatasetSpec spec = shards(set.temp, "set_train_*.bin", 4);
    if (!documents.empty()) spec.keys["documents"] = documents;
    if (end != -1) spec.keys["end"] = end;
    spec.limit = limit;
    return make_dataset(spec)->document_end();
  };
  const auto error = [&](const std::string& documents, int64_t end) {
    return error_of([&] { end_of(documents, end); });
  };
  CHECK(end_of("", -1) == -1);
  CHECK(end_of("joined", -1) == -1);
  CHECK(end_of("apart", 2) == 2);
  CHECK(end_of("apart", 2, 1) == 2);
  CHECK(contains(error("apart", -1), "documents: apart needs the id that ends a document: the tokenizer has none"));
  CHECK(contains(error("apart", 3), "end: got 3, expected an id below 3."));
  CHECK(contains(error("joined", 1), "end: got 1 with documents: joined, expected documents: apart."));
  set.record["end"] = 1;
  std::ofstream(set.temp.file("set.tokens.json")) << set.record.dump();
  CHECK(end_of("apart", -1) == 1);
  CHECK(end_of("apart", 0) == 0);
  CHECK(end_of("", -1) == -1);
  for (const int64_t bad : {3, -2}) {
    set.record["end"] = bad;
    std::ofstream(set.temp.file("set.tokens.json")) << set.record.dump();
    CHECK(contains(error("apart", -1),
                   concat("set.tokens.json: [data.tokens] end: got ", bad, ", expected -1 or an id")));
  }
}

TEST_CASE("Shards of another tokenizer than data.tokenizer are an error that names both") {
  const Packed set;
  DatasetSpec spec = shards(set.temp, "set_train_*.bin", 4);
  spec.tokenizer = "bytes";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "tokenizer: data.tokenizer (bytes) and " +
                                                            set.temp.file("set.tokens.json") +
                                                            " differ: bytes of 256 ids, chars of 3 ids."));
  Json other{{"format_version", 1}, {"tokenizer", tokenizer_record(*make_tokenizer("chars", "abc"))}};
  std::ofstream(set.temp.file("other.tokens.json")) << other.dump();
  spec.tokenizer = "other.tokens.json";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "id 2 is 'c', '\xe2\x82\xac'"));
  CHECK(error_code_of([&] { make_dataset(spec); }) == 3);
  DatasetSpec bare = shards(set.temp, "bare.bin", 1);
  write_shard(set.temp.file("bare.bin"), {0, 1, 2});
  CHECK(contains(error_of([&] { make_dataset(bare); }), "vocabulary: got none"));
  bare.tokenizer = "chars";
  CHECK(
      contains(error_of([&] { make_dataset(bare); }), "tokenizer: got chars for a file stored as shard: it holds ids"));
  bare.tokenizer = "bytes";
  CHECK(make_dataset(bare)->vocabulary() == 256);
  std::ofstream(set.temp.file("set.tokens.json")) << "{";
  CHECK(contains(error_of([&] { make_dataset(shards(set.temp, "set_val_*.bin", 1)); }), "set.tokens.json: "));
}

TEST_CASE("Overlapping windows count every target once, with more before it") {
  const Packed set;
  const std::vector<int32_t> all{1, 2, 0, 1, 2, 1, 1, 0, 2};
  for (int64_t context = 1; context <= 12; ++context)
    for (int64_t stride = 0; stride <= context; ++stride) {
      DatasetSpec spec = shards(set.temp, "set_train_*.bin", context);
      spec.keys["stride"] = stride;
      INFO("context " << context << " stride " << stride);
      const auto data = make_dataset(spec);
      CHECK(targets_of(*data) == all);
      CHECK(data->stored().codes == nullptr);
    }
  DatasetSpec spec = shards(set.temp, "set_train_*.bin", 3);
  spec.keys["stride"] = 4;
  CHECK(contains(error_of([&] { make_dataset(spec); }),
                 "stride: got 4 for order sequential, expected order sequential and at most context = 3."));
  spec.keys["stride"] = 2;
  spec.keys["order"] = "random";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "stride: got 2 for order random"));
}

TEST_CASE("A text is read with the tokenizer of the model where there is one") {
  const TempDir temp;
  std::ofstream(temp.file("a.txt")) << "abba";
  std::ofstream(temp.file("vocabulary.tokens.json"))
      << Json{{"format_version", 1}, {"tokenizer", tokenizer_record(*make_tokenizer("chars", "ab"))}}.dump();
  DatasetSpec spec;
  spec.format = "tokens";
  spec.root = temp.path();
  spec.file = "a.txt";
  spec.context = 3;
  spec.whole = true;
  spec.of_model = make_tokenizer("chars", "abc");
  CHECK(make_dataset(spec)->vocabulary() == 3);
  spec.tokenizer = "chars";
  CHECK(make_dataset(spec)->tokenizer() == spec.of_model);
  spec.tokenizer = "gone.json";
  CHECK(make_dataset(spec)->vocabulary() == 3);
  spec.tokenizer = "bytes";
  CHECK(contains(error_of([&] { make_dataset(spec); }),
                 "tokenizer: got bytes, the model was trained with chars of 3 ids."));
  spec.tokenizer = "vocabulary.tokens.json";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "chars of 2 ids, chars of 3 ids"));
  spec.of_model = nullptr;
  CHECK(make_dataset(spec)->vocabulary() == 2);
}
