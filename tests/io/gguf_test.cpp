// GGUF files: what ggml's own package wrote reads, and is written again byte for byte; damage is refused.
#include "bitgrad/io/gguf.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "bitgrad/base/file.h"
#include "bitgrad/base/rng.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kGolden = source_path("tests/golden/ggml_blocks.gguf");
using Type = GgufValue::Type;

std::vector<uint8_t> bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file by hand.
class Bytes {
 public:
  template <typename T>
  Bytes& put(T value) {
    const auto* const p = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
    return *this;
  }
  Bytes& text(std::string_view value) {
    put<uint64_t>(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  Bytes& head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return put<uint32_t>(0x46554747).put(version).put(tensors).put(keys);
  }
  // F32 [2, 3] of 24 bytes unless told otherwise.
  Bytes& tensor(std::string_view name, uint64_t offset, uint32_t type = 0, std::vector<uint64_t> axes = {3, 2}) {
    text(name).put(static_cast<uint32_t>(axes.size()));
    for (uint64_t n : axes) put(n);
    return put(type).put(offset);
  }
  Bytes& data(size_t bytes, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + bytes);
    return *this;
  }
  const std::vector<uint8_t>& all() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// The error of reading such a file; it must be one of data, and name the path.
std::string refusal(const std::vector<uint8_t>& bytes) {
  const auto call = [&] { GgufFile::parse(bytes, "some.gguf"); };
  std::string text = error_of(call);
  if (!text.empty() && (error_code_of(call) != 3 || !contains(text, "[gguf] 'some.gguf': ")))
    return "wrong form: " + text;
  return text;
}
std::string refusal(const Bytes& bytes) { return refusal(bytes.all()); }

std::vector<GgufItem> items_of(const GgufFile& file) {
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
  return items;
}

}  // namespace

TEST_CASE("Every type of metadata of a file by ggml's package reads as it was written") {
  const GgufFile file = GgufFile::read(kGolden);
  CHECK(file.text("general.architecture") == "test");
  CHECK(file.integer("test.uint8") == 200);
  CHECK(file.integer("test.int8") == -7);
  CHECK(file.integer("test.uint16") == 60000);
  CHECK(file.integer("test.int16") == -300);
  CHECK(file.integer("test.uint32") == 4000000000);
  CHECK(file.integer("test.int32") == -5);
  CHECK(file.number("test.float32") == static_cast<double>(0.1f));
  CHECK(file.integer("test.int64") == -(int64_t{1} << 60));
  CHECK(file.number("test.float64") == 1e300);
  CHECK(file.number("test.int8") == -7.0);
  CHECK(file.boolean("test.bool"));
  CHECK(file.text("test.text") == std::string("\u00dcn\u00ef\0 \U0001F600", 11));
  CHECK(file.texts("test.texts") == GgufValue::Texts{"a", "", "\u0120\u0120"});
  CHECK(*file.find("test.ints") == GgufValue::int32s({1, -2, 3}));
  CHECK(*file.find("test.floats") == GgufValue(GgufValue::Type::kFloat32, true, GgufValue::Floats{0.5, -1.25}));
  CHECK(file.find("absent") == nullptr);
  CHECK(contains(error_of([&] { file.text("absent"); }), "the metadata have no key 'absent'"));
  CHECK(contains(error_of([&] { file.text("test.int8"); }), "key 'test.int8': got int8, expected text"));
  CHECK(contains(error_of([&] { file.integer("test.text"); }), "key 'test.text': got text, expected an integer"));
  CHECK(contains(error_of([&] { file.integer("test.bool"); }), "got bool, expected an integer"));
  CHECK(
      contains(error_of([&] { file.integer("test.uint64"); }), "got 18446744073709551615, expected at most 2^63 - 1"));
  CHECK(contains(error_of([&] { file.number("test.floats"); }), "got array of 2 float32, expected a number"));
  CHECK(contains(error_of([&] { file.boolean("test.int8"); }), "got int8, expected a bool"));
  CHECK(contains(error_of([&] { file.texts("test.text"); }), "got text, expected an array of text"));
  CHECK(contains(error_of([&] { file.entry("absent"); }), "no such tensor: 'absent'"));
}

TEST_CASE("A file of ggml's package, read and written again, has the same bytes") {
  const GgufFile file = GgufFile::read(kGolden);
  const TempDir dir;
  write_gguf(dir.file("again.gguf"), items_of(file), file.metadata());
  CHECK(bytes_of(dir.file("again.gguf")) == bytes_of(kGolden));
}

TEST_CASE("Shapes are row-major, empty tensors and files are files, other alignments are read") {
  const TempDir dir;
  write_gguf(dir.file("e"), {}, {});
  CHECK(GgufFile::read(dir.file("e")).entries().empty());
  write_gguf(dir.file("n"),
             {{"none", GgufType::kF32, {0, 3}, {}}, {"row", GgufType::kQ8_0, {1, 2, 32}, std::vector<uint8_t>(68, 1)}},
             {});
  const GgufFile file = GgufFile::read(dir.file("n"));
  CHECK(file.entry("none").bytes == 0);
  CHECK(file.entry("row").shape == std::vector<int64_t>{1, 2, 32});
  CHECK(file.data("row") == std::vector<uint8_t>(68, 1));
  Bytes other;
  other.head(2, 1).text("general.alignment").put<uint32_t>(4).put<uint32_t>(8).tensor("a", 0).tensor("b", 24);
  CHECK(refusal(other.data(48, 8)).empty());
  CHECK(contains(refusal(Bytes().head(2, 0).tensor("a", 0).tensor("b", 24).data(48)),
                 "tensor 'b': its data begin at 24, expected a multiple of 32"));
  CHECK(refusal(Bytes().head(0, 0, 2)).empty());
}

TEST_CASE("Files cut off anywhere are refused, and no flipped bit does more than that") {
  const TempDir dir;
  write_gguf(
      dir.file("f"),
      {{"a", GgufType::kF32, {2, 3}, std::vector<uint8_t>(24, 7)},
       {"b", GgufType::kQ4_0, {32}, std::vector<uint8_t>(18, 9)}},
      {{"text", GgufValue::text("abc")}, {"array", GgufValue::texts({"x", "yz"})}, {"n", GgufValue::int32s({1, 2})}});
  const std::vector<uint8_t> whole = bytes_of(dir.file("f"));
  REQUIRE(refusal(whole).empty());
  const size_t last = whole.size() - 14;  // the pad behind the last tensor may be absent
  for (size_t n = 0; n < last; ++n)
    CHECK(!refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}).empty());
  CHECK(refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(last)}).empty());
  for (size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> bytes = whole;
      bytes[i] ^= static_cast<uint8_t>(1 << bit);
      CHECK(!contains(refusal(bytes), "wrong form"));
    }
}

TEST_CASE("Counts and lengths are compared with the file before memory is asked for") {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  CHECK(contains(refusal(Bytes().head(kHuge, 0)),
                 "its head: got 1152921504606846976 tensors, more than the rest of the file holds"));
  CHECK(contains(refusal(Bytes().head(0, kHuge)), "1152921504606846976 keys, more than"));
  CHECK(
      contains(refusal(Bytes().head(0, 1).put(kHuge).data(64)), "the metadata: got 1152921504606846976 bytes of text"));
  CHECK(contains(refusal(Bytes().head(0, 1).text("k").put<uint32_t>(9).put<uint32_t>(8).put(kHuge).data(64)),
                 "key 'k': got 1152921504606846976 values, more than"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 0, {kHuge, 16}).data(64)), "tensor 'a': rows of"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 0, {1 << 20, 1 << 20}).data(64)),
                 "tensor 'a': its 4398046511104 bytes from 0 end after the data"));
}

TEST_CASE("Wrong heads are refused with what and where") {
  CHECK(
      contains(refusal(Bytes().put<uint32_t>(0x46554746).put<uint32_t>(3).data(64)), "it does not begin with 'GGUF'"));
  CHECK(contains(refusal(Bytes().head(0, 0, 1)), "version: got 1, expected 2 or 3."));
  CHECK(contains(refusal(Bytes().head(0, 0, 0x03000000)), "(big-endian files are not read)"));
  CHECK(contains(refusal(Bytes().head(0, 1).text("k").put<uint32_t>(13).data(64)),
                 "key 'k': got a value of type 13, expected 0 .. 12"));
  CHECK(
      contains(refusal(Bytes().head(0, 1).text("k").put<uint32_t>(9).put<uint32_t>(9).data(64)), "an array of arrays"));
  CHECK(contains(refusal(Bytes().head(0, 1).text("k").put<uint32_t>(7).put<uint8_t>(2).data(64)),
                 "key 'k': got 2 as a bool"));
  const auto two = [](Bytes bytes) { return bytes.text("k").put<uint32_t>(0).put<uint8_t>(1); };
  CHECK(contains(refusal(two(two(Bytes().head(0, 2)))), "key 'k': it occurs twice"));
  CHECK(contains(refusal(Bytes().head(2, 0).tensor("a", 0).tensor("a", 32).data(64)),
                 "tensor 'a': the name occurs twice"));
  CHECK(contains(refusal(Bytes().head(2, 0).tensor("a", 0).tensor("b", 0).data(64)),
                 "the data of tensors 'a' and 'b' overlap"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 4).data(64)),
                 "tensor 'a': got type 4, which is not a type of ggml"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 8, {33}).data(64)),
                 "rows of 33 elements do not fill blocks of 32 (Q8_0)"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 0, {}).data(64)), "got 0 axes, expected 1 to 4"));
  CHECK(contains(refusal(Bytes().head(1, 0).tensor("a", 0, 0, {1, 1, 1, 1, 1}).data(64)), "got 5 axes"));
  for (uint32_t wrong : {0u, 4u, 24u, 1u << 21})
    CHECK(contains(refusal(Bytes().head(0, 1).text("general.alignment").put<uint32_t>(4).put(wrong)),
                   "general.alignment: expected a uint32, a power of 2"));
  CHECK(contains(refusal(Bytes().head(0, 1).text("general.alignment").put<uint32_t>(5).put<int32_t>(32)),
                 "general.alignment: expected a uint32"));
}

TEST_CASE("Nothing is written of what would not be a file") {
  const TempDir dir;
  const auto error = [&](const std::vector<GgufItem>& items, const GgufMetadata& metadata) {
    std::string text = error_of([&] { write_gguf(dir.file("no"), items, metadata); });
    CHECK(!file_system().exists(dir.file("no")));
    return text;
  };
  const GgufItem good{"a", GgufType::kF32, {1}, std::vector<uint8_t>(4)};
  const auto named = [&](const std::string& name) {
    return GgufItem{name, GgufType::kF32, {1}, std::vector<uint8_t>(4)};
  };
  CHECK(contains(error({good, good}, {}), "[write_gguf] two tensors are named 'a'"));
  CHECK(contains(error({named("")}, {}), "expected a name of 1 to 63 bytes of UTF-8"));
  CHECK(contains(error({named(std::string(64, 'x'))}, {}), "expected a name of 1 to 63 bytes"));
  CHECK(contains(error({named("\xFF")}, {}), "of UTF-8"));
  CHECK(contains(error({{"a", GgufType::kF32, {}, {}}}, {}), "got 0 axes, expected 1 to 4"));
  CHECK(contains(error({{"a", GgufType::kQ4_0, {2, 31}, {}}}, {}),
                 "rows of 31 elements do not fill blocks of 32 (Q4_0)"));
  CHECK(
      contains(error({{"a", GgufType::kF32, {2}, std::vector<uint8_t>(7)}}, {}), "got 7 bytes, type and shape need 8"));
  CHECK(contains(error({}, {{"k", GgufValue::text("x")}, {"k", GgufValue::text("y")}}), "the key 'k' occurs twice"));
  CHECK(contains(error({}, {{"general.alignment", GgufValue::uint32(32)}}), "is written by the library itself"));
  CHECK(contains(error({}, {{"", GgufValue::uint32(32)}}), "key '': expected 1 to 65535 bytes"));
  CHECK(contains(error_of([] { GgufValue(Type::kText, false, GgufValue::Integers{1}); }),
                 "a value of type text was given data of another kind"));
  CHECK(contains(error_of([] {
                   GgufValue(Type::kInt8, false, GgufValue::Integers{1, 2});
                 }),
                 "one value of type int8: got 2"));
}
