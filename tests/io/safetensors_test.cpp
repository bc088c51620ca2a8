#include "bitgrad/io/safetensors.h"
#include "bitgrad/base/json.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/base/rng.h"
#include "io/safetensors_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::refusal;
using Metadata = std::map<std::string, std::string>;

const std::vector<float> kFloats{1.5f, -2.0f, 3.25f, 0.0f, 1e-40f, -1e30f};
const std::vector<uint8_t> kCodes{0xAA, 0x01, 0xFF};
const int64_t kCounter = -5;
const Metadata kMetadata{{"bitgrad.state", "{\"step\": 7}"}, {"note", "quotes \" and \\ and \n and \xC3\xA4"}};

std::vector<SafetensorsItem> sample_items() {
  return {{"layers.0.weight.codes", "U8", {3, 1}, kCodes.data(), 3},
          {"layers.0.weight.master", "F32", {2, 3}, kFloats.data(), 24},
          {"empty", "BF16", {0, 4}, nullptr, 0},
          {"counter", "I64", {}, &kCounter, 8}};
}

std::vector<uint8_t> sample_bytes() {
  const test::TempDir dir;
  write_safetensors(dir.file("a"), sample_items(), kMetadata);
  return file_system().read(dir.file("a"));
}

TEST_CASE("A safetensors file comes back as it was written") {
  const test::TempDir dir;
  write_safetensors(dir.file("a"), sample_items(), kMetadata);
  const SafetensorsFile file = SafetensorsFile::read(dir.file("a"));
  CHECK(file.path() == dir.file("a"));
  CHECK(file.has_checksums());
  for (const auto& [key, value] : kMetadata) CHECK(file.metadata().at(key) == value);
  CHECK(file.metadata().size() == kMetadata.size() + 2);
  REQUIRE(file.entries().size() == 4);
  int64_t at = 0;
  for (const SafetensorsItem& item : sample_items()) {
    const SafetensorsEntry& entry = file.entry(item.name);
    CHECK(entry.dtype == item.dtype);
    CHECK(entry.shape == item.shape);
    CHECK(entry.bytes == item.bytes);
    CHECK(entry.offset == at);
    if (item.bytes > 0) CHECK(std::memcmp(file.data(item.name), item.data, static_cast<size_t>(item.bytes)) == 0);
    at += item.bytes;
  }
  CHECK(!file.contains("other"));
  const auto absent = [&] { file.data("other"); };
  CHECK(error_code_of(absent) == 3);
  CHECK(contains(error_of(absent), "no such tensor: 'other'"));
}

TEST_CASE("A file that is held open gives the same entries and bytes, and checks its data when asked") {
  const test::TempDir dir;
  write_safetensors(dir.file("a"), sample_items(), kMetadata);
  const SafetensorsFile whole = SafetensorsFile::read(dir.file("a")), open = SafetensorsFile::open(dir.file("a"));
  CHECK(open.metadata() == whole.metadata());
  CHECK(open.has_checksums());
  CHECK_NOTHROW(open.check_data());
  REQUIRE(open.entries().size() == whole.entries().size());
  for (const SafetensorsEntry& e : whole.entries())
    for (const SafetensorsFile* file : {&whole, &open})
      for (int64_t begin = 0; begin <= e.bytes; ++begin) {
        std::vector<uint8_t> part(static_cast<size_t>(e.bytes - begin));
        file->copy(e.name, begin, e.bytes - begin, part.data());
        if (!part.empty()) CHECK(std::memcmp(part.data(), whole.data(e.name) + begin, part.size()) == 0);
      }
  CHECK(contains(error_of([&] { open.data("counter"); }), "is held open, not in memory"));
  CHECK(contains(error_of([&] { open.copy("other", 0, 1, nullptr); }), "no such tensor: 'other'"));
  uint8_t byte = 0;
  CHECK(error_code_of([&] { open.copy("counter", 0, 9, &byte); }) == 70);
  CHECK(error_code_of([&] { open.copy("counter", -1, 1, &byte); }) == 70);
}

TEST_CASE("Of a file that is held open the header is checked at once, the data by check_data, and its length always") {
  const test::TempDir dir;
  const std::vector<uint8_t> good = sample_bytes();
  const auto put = [&](const std::vector<uint8_t>& bytes) {
    write_file_atomically(dir.file("a"), std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  const size_t data = good.size() - 35;
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<uint8_t> bytes = good;
    bytes[at] ^= 1;
    put(bytes);
    INFO(at);
    const std::string text = error_of([&] { SafetensorsFile::open(dir.file("a")); });
    CHECK(text.empty() == (at >= data));
    CHECK(error_of([&] { SafetensorsFile::open(dir.file("a")).check_data(); }) ==
          error_of([&] { SafetensorsFile::read(dir.file("a")); }));
  }
  for (size_t size = 0; size < good.size(); ++size) {
    put({good.begin(), good.begin() + static_cast<int64_t>(size)});
    CHECK(error_code_of([&] { SafetensorsFile::open(dir.file("a")); }) == 3);
  }
  put(good);
  const SafetensorsFile open = SafetensorsFile::open(dir.file("a"));
  std::filesystem::resize_file(dir.file("a"), good.size() - 1);
  int64_t counter = 0;
  CHECK(contains(error_of([&] { open.copy("counter", 0, 8, &counter); }), "the file became shorter while it was read"));
  CHECK(contains(error_of([&] { open.check_data(); }), "the file became shorter while it was read"));
}

TEST_CASE("What is written is plain safetensors to another parser, with the data at a multiple of 64") {
  const std::vector<uint8_t> bytes = sample_bytes();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK((8 + length) % 64 == 0);
  const auto json = Json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()) + 8, length));
  CHECK(json.size() == 5);
  CHECK(json["__metadata__"]["note"] == kMetadata.at("note"));
  CHECK(json["layers.0.weight.master"]["dtype"] == "F32");
  CHECK(json["layers.0.weight.master"]["shape"] == std::vector<int>{2, 3});
  const auto offsets = json["layers.0.weight.master"]["data_offsets"].get<std::vector<size_t>>();
  CHECK(std::memcmp(bytes.data() + 8 + length + offsets[0], kFloats.data(), 24) == 0);
  CHECK(offsets[1] - offsets[0] == 24);
  CHECK(json["counter"]["shape"] == std::vector<int>{});
  CHECK(bytes.size() == 8 + length + 3 + 24 + 8);
  // The checksums, computed by hand.
  std::vector<uint8_t> front(bytes.begin(), bytes.begin() + 8 + static_cast<int64_t>(length));
  std::string text(front.begin(), front.end());
  const std::string key = "\"bitgrad.header_crc32c\":\"";
  text.replace(text.find(key) + key.size(), 8, "00000000");
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", crc32c(text.data(), text.size()));
  CHECK(json["__metadata__"]["bitgrad.header_crc32c"] == digits);
  std::snprintf(digits, sizeof digits, "%08x", crc32c(bytes.data() + front.size(), bytes.size() - front.size()));
  CHECK(json["__metadata__"]["bitgrad.crc32c"] == digits);
}

TEST_CASE("A file without tensors, and the same content twice, are ordinary") {
  const test::TempDir dir;
  write_safetensors(dir.file("none"), {}, {});
  CHECK(SafetensorsFile::read(dir.file("none")).entries().empty());
  CHECK(sample_bytes() == sample_bytes());
}

TEST_CASE("Every truncation and every appended byte is found") {
  const std::vector<uint8_t> whole = sample_bytes();
  REQUIRE(refusal(whole).empty());
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string text = refusal(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<int64_t>(n)));
    INFO(n << " bytes: " << text);
    REQUIRE(contains(text, "[safetensors]"));
    REQUIRE(!contains(text, "wrong form"));
  }
  std::vector<uint8_t> longer = whole;
  longer.push_back(0);
  CHECK(contains(refusal(longer), "the length of the file does not fit"));
}

TEST_CASE("Every flipped bit of a whole file is found") {
  std::vector<uint8_t> bytes = sample_bytes();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    const std::string text = refusal(bytes);
    INFO("bit " << bit << ": " << text);
    REQUIRE(contains(text, "[safetensors]"));
    REQUIRE(!contains(text, "wrong form"));
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  CHECK(refusal(bytes).empty());
}

TEST_CASE("Random damage of several bytes is found and never crashes") {
  const std::vector<uint8_t> whole = sample_bytes();
  const RandomStream random{11, Purpose::kUser, 0, 0};
  for (uint64_t round = 0; round < 2000; ++round) {
    std::vector<uint8_t> bytes = whole;
    const uint32_t count = 1 + random.bits32(round * 64) % 6;
    for (uint64_t i = 1; i <= count; ++i) {
      const uint32_t r = random.bits32(round * 64 + i), at = random.bits32(round * 64 + 16 + i);
      bytes[at % bytes.size()] ^= static_cast<uint8_t>(1 + r % 255);
    }
    if (bytes != whole) REQUIRE(contains(refusal(bytes), "[safetensors] 'some.path'"));
  }
}

TEST_CASE("Good files are never refused") {
  const test::TempDir dir;
  const RandomStream random{12, Purpose::kUser, 0, 0};
  const std::vector<uint8_t> data(4096, 0x5A);
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<SafetensorsItem> items;
    Metadata metadata;
    for (uint64_t i = 0; i < random.bits32(round * 100) % 12; ++i) {
      const int64_t a = random.bits32(round * 100 + 1 + i) % 32, b = random.bits32(round * 100 + 20 + i) % 32;
      items.push_back({"t" + std::to_string(i), "F32", {a, b}, data.data(), a * b * 4});
      metadata["m" + std::to_string(i)] = std::string(static_cast<size_t>(a), 'v');
    }
    write_safetensors(dir.file("a"), items, metadata);
    const SafetensorsFile file = SafetensorsFile::read(dir.file("a"));
    REQUIRE(file.entries().size() == items.size());
  }
}

TEST_CASE("A file that is absent or a directory is an error of data that names it") {
  const test::TempDir dir;
  CHECK(error_code_of([&] { SafetensorsFile::read(dir.file("no")); }) == 3);
  CHECK(contains(error_of([&] { SafetensorsFile::read(dir.file("no")); }), dir.file("no")));
  CHECK(error_code_of([&] { SafetensorsFile::read(dir.path()); }) == 3);
}

TEST_CASE("Wrong items are refused before anything is written") {
  const test::TempDir dir;
  const std::string path = dir.file("a");
  const auto refused = [&](std::vector<SafetensorsItem> items, const Metadata& metadata = {}) {
    const auto call = [&] { write_safetensors(path, items, metadata); };
    CHECK(error_code_of(call) == 2);
    CHECK(!file_system().exists(path));
    return error_of(call);
  };
  const uint8_t* d = kCodes.data();
  CHECK(contains(refused({{"a", "U8", {3}, d, 3}, {"a", "U8", {3}, d, 3}}), "two tensors are named 'a'"));
  CHECK(contains(refused({{"__metadata__", "U8", {3}, d, 3}}), "__metadata__"));
  CHECK(contains(refused({{"a", "BINT1", {3}, d, 3}}), "got dtype 'BINT1'"));
  CHECK(contains(refused({{"a", "U8", {3}, d, 2}}), "got 2 bytes, dtype and shape need 3"));
  CHECK(contains(refused({{"a", "U8", {-3}, d, 3}}), "negative"));
  CHECK(contains(refused({{"a", "F64", {int64_t{1} << 60}, d, 3}}), "too large"));
  CHECK(contains(refused({{"a", "U8", {3}, nullptr, 3}}), "has no data"));
  CHECK(contains(refused({{"a\xFF", "U8", {3}, d, 3}}), "UTF-8"));
  CHECK(contains(refused({}, {{"k", "\xC3"}}), "UTF-8"));
  CHECK(contains(refused({}, {{"bitgrad.crc32c", "1"}}), "bitgrad.crc32c"));
}

TEST_CASE("A save that fails at any call leaves the old checkpoint whole") {
  const test::TempDir dir;
  const std::string path = dir.file("last.safetensors");
  write_safetensors(path, sample_items(), {{"generation", "old"}});
  for (int at = 0;; ++at) {
    std::string error;
    {
      test::FaultyFileSystem faulty(at, test::FaultyFileSystem::When::kHalfWritten, false);
      error = error_of([&] { write_safetensors(path, sample_items(), {{"generation", "new"}}); });
      if (!error.empty() && faulty.names().back() == "sync_directory") continue;  // renamed already: whole, and new
    }
    if (error.empty()) break;
    const SafetensorsFile file = SafetensorsFile::read(path);
    CHECK(file.has_checksums());
    CHECK(contains("old new", file.metadata().at("generation")));
    CHECK(file_system().list(dir.path()).size() == 1);
  }
  CHECK(SafetensorsFile::read(path).metadata().at("generation") == "new");
}

}  // namespace
}  // namespace bitgrad
