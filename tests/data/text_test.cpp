#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "bitgrad/base/file.h"
#include "bitgrad/data/loader.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;

constexpr int kData = static_cast<int>(ErrorCode::kData);
constexpr int kUsage = static_cast<int>(ErrorCode::kUsage);

DatasetSpec text_spec(const std::string& file, int64_t context, const std::string& split = "train",
                      double test_fraction = 0.1) {
  DatasetSpec spec;
  spec.format = "text";
  spec.file = file;
  spec.context = context;
  spec.split = split;
  spec.test_fraction = test_fraction;
  return spec;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

// Every sample of both splits against the bytes themselves; a sample of long texts.
void check_against_bytes(const std::string& path, const std::string& text, int64_t context, double test_fraction,
                         int64_t stride = 1) {
  std::map<uint8_t, int32_t> ids;
  for (const char c : text) ids[static_cast<uint8_t>(c)] = 0;
  int32_t next = 0;
  for (auto& [byte, id] : ids) id = next++;
  const auto at = [&](int64_t p) { return ids.at(static_cast<uint8_t>(text[static_cast<size_t>(p)])); };
  const int64_t n = static_cast<int64_t>(text.size()), cut = static_cast<int64_t>(n * (1.0 - test_fraction));
  for (const std::string split : {"train", "test"}) {
    const int64_t begin = split == "train" ? 0 : cut, end = split == "train" ? cut : n;
    const auto set = make_dataset(text_spec(path, context, split, test_fraction));
    CHECK(set->size() == end - begin - context);
    CHECK(set->classes() == next);
    CHECK(set->vocabulary() == next);
    CHECK(set->dtype() == dtypes::int32);
    CHECK(set->features() == context);
    CHECK(set->memory_bytes() == end - begin);
    CHECK(set->name() == path + " (" + split + ")");
    std::vector<int32_t> x(static_cast<size_t>(context));
    bool equal = true;
    for (int64_t i = 0; i < set->size();
         i = i + stride < set->size() || i == set->size() - 1 ? i + stride : set->size() - 1) {
      int32_t label = -1;
      set->sample_ids(i, x.data(), &label);
      for (int64_t c = 0; c < context; ++c) equal = equal && x[static_cast<size_t>(c)] == at(begin + i + c);
      equal = equal && label == at(begin + i + context);
    }
    CHECK(equal);
  }
}

}  // namespace

TEST_CASE("A text gives the ids before each position and the id there, by the bytes of the whole file") {
  const test::TempDir temp;
  const std::string path = temp.file("a.txt");
  // The last part holds bytes that the first has not, 0 and 255 among them.
  std::string text = "the quick brown fox\njumps over the lazy dog. 0123";
  text += std::string("\0\xff zZ", 5);
  write(path, text);
  for (const int64_t context : {1, 2, 4}) check_against_bytes(path, text, context, 0.2);
  check_against_bytes(path, text, 3, 0.5);
  write(path, std::string(300, 'a'));
  check_against_bytes(path, std::string(300, 'a'), 5, 0.1);
  write_gzip(temp.file("b.txt"), text);
  check_against_bytes(temp.file("b.txt"), text, 4, 0.2);
}

TEST_CASE("Splits of a text share no position, and a fraction of 0 leaves nothing to test") {
  const test::TempDir temp;
  const std::string path = temp.file("a.txt");
  write(path, "abcdefghij");
  CHECK(make_dataset(text_spec(path, 2, "train", 0))->size() == 8);
  CHECK(make_dataset(text_spec(path, 2, "train", 0.3))->size() == 5);
  CHECK(make_dataset(text_spec(path, 2, "test", 0.3))->size() == 1);
  CHECK(error_of([&] { make_dataset(text_spec(path, 3, "test", 0.3)); }) ==
        "[data.text] " + path +
            ": split test: got 3 of the file's 10 bytes, expected more than context = 3. Take a longer text, a shorter "
            "context or another test_fraction (0.3).");
  CHECK(error_code_of([&] { make_dataset(text_spec(path, 10, "train", 0)); }) == kData);
  CHECK(contains(error_of([&] { make_dataset(text_spec(path, 1, "test", 0)); }), "got 0 of the file's 10 bytes"));
}

TEST_CASE("A text that is missing, empty or no file, and keys out of range, are errors that name them") {
  const test::TempDir temp;
  DatasetSpec spec = text_spec("a.txt", 3);
  spec.root = temp.file("");
  CHECK(error_code_of([&] { make_dataset(spec); }) == kData);
  CHECK(
      contains(error_of([&] { make_dataset(spec); }), "[data.text] file '" + temp.file("a.txt") + "': no such file."));
  write_gzip(temp.file("a.txt.gz"), "abc");
  CHECK(contains(error_of([&] { make_dataset(spec); }), "There is '" + temp.file("a.txt.gz") + "'."));
  write(temp.file("a.txt"), "");
  CHECK(error_of([&] { make_dataset(spec); }) == "[data.text] " + temp.file("a.txt") + ": the file is empty.");
  CHECK(contains(error_of([&] { make_dataset(text_spec(temp.file(""), 3)); }), "got a folder, expected a text."));
  write(temp.file("a.txt"), "abcdefghijklmn");
  CHECK_NOTHROW(make_dataset(spec));
  const auto wrong = [&](auto change) {
    DatasetSpec other = spec;
    change(other);
    CHECK(error_code_of([&] { make_dataset(other); }) == kUsage);
    return error_of([&] { make_dataset(other); });
  };
  CHECK(contains(wrong([](DatasetSpec& s) { s.context = 0; }), "format text: got no key 'context'"));
  CHECK(contains(wrong([](DatasetSpec& s) { s.file.clear(); }), "format text: got no key 'file'"));
  CHECK(contains(wrong([](DatasetSpec& s) { s.context = -1; }), "context: got -1, expected 1 or more."));
  CHECK(contains(wrong([](DatasetSpec& s) { s.test_fraction = 1; }), "test_fraction: got 1, expected a number in"));
  CHECK(contains(wrong([](DatasetSpec& s) { s.split = "both"; }), "split: got 'both', expected train or test."));
  CHECK(contains(wrong([](DatasetSpec& s) { s.affine = {2, -1}; }), "affine: got [2, -1], which is for pixels"));
  const auto set = make_dataset(spec);
  int32_t ids[3], label;
  float x[3];
  CHECK(contains(error_of([&] { set->sample_ids(9, ids, &label); }), "sample index: got 9, expected 0 .. 8."));
  CHECK(contains(error_of([&] { set->sample_ids(-1, ids, &label); }), "sample index: got -1"));
  CHECK(contains(error_of([&] { set->sample(0, x, &label); }), "samples are int32: this data set has no fp32 values."));
}

TEST_CASE("A loader of a text fills batches of ids, and of numbers again in the same buffer") {
  const test::TempDir temp;
  write(temp.file("a.txt"), "abracadabra, said the magician to the rabbit");
  const auto text = make_dataset(text_spec(temp.file("a.txt"), 3));
  LoaderOptions options;
  options.micro = 4;
  options.seed = 5;
  for (const int prefetch : {0, 2}) {
    options.prefetch = prefetch;
    Loader loader(*text, options);
    Batch batch;
    for (int b = 0; b < 12; ++b) {
      REQUIRE(loader.next(batch));
      REQUIRE(batch.dtype == dtypes::int32);
      REQUIRE(batch.x == nullptr);
      for (int64_t i = 0; i < batch.size; ++i) {
        int32_t x[3], label;
        text->sample_ids(batch.ids[i], x, &label);
        CHECK(std::vector<int32_t>(x, x + 3) == std::vector<int32_t>(batch.tokens + 3 * i, batch.tokens + 3 * i + 3));
        CHECK(batch.labels[i] == label);
      }
    }
    batch.resize(2, {3}, dtypes::fp32, {.classes = 1});
    CHECK((batch.dtype == dtypes::fp32 && batch.x != nullptr && batch.tokens == nullptr));
  }
  CHECK(contains(error_of([] { Batch().resize(1, {1}, dtypes::int8, {.classes = 1}); }),
                 "dtype: got int8, expected fp32 or int32."));
}

TEST_CASE("Tiny Shakespeare is read as its bytes") {
  const std::string path = test::data_folder() + "/text/tinyshakespeare.txt";
  const std::string text = bytes_of(path);
  if (text.empty()) {
    WARN("skipped: no " << path << " (set BITGRAD_DATA)");
    return;
  }
  check_against_bytes(path, text, 16, 0.1, 997);
  const auto train = make_dataset(text_spec(path, 16));
  CHECK(train->vocabulary() == 65);
  CHECK(train->size() == 1003854 - 16);
}

TEST_CASE("A packed text that swells to more than 100 times its file is refused with what to do") {
  const test::TempDir dir;
  write_gzip(dir.file("t.gz"), std::string(size_t{17} << 20, 'a'));
  const auto call = [&] { make_dataset(text_spec(dir.file("t.gz"), 4)); };
  CHECK(error_code_of(call) == kData);
  CHECK(contains(error_of(call), "the content of the gzip stream is too long: got more than 16777216 bytes"));
  CHECK(contains(error_of(call), "unpack it first"));
}

TEST_CASE("Of a long text no more than the split is in memory") {
  const test::TempDir dir;
  write(dir.file("t"), std::string(size_t{4} << 20, 'a') + "b");
  reset_memory_peaks();
  const int64_t before = memory_now().total;
  const auto set = make_dataset(text_spec(dir.file("t"), 4, "test", 0.25));
  CHECK(memory_at_peak().total - before <= (int64_t{1} << 20) + 64);
  CHECK(set->classes() == 2);
}

}  // namespace bitgrad
