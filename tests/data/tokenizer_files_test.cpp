// Tokenizers of other programs, against the ids of the Python packages (tests/golden/tokenizers/make.py).
#include <fstream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/tokenizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kGolden = source_path("tests/golden/tokenizers/");

std::string bytes_of(const std::string& path) {
  const std::vector<uint8_t> bytes = file_system().read(path);
  return {bytes.begin(), bytes.end()};
}
std::string path_of(const std::string& name) {
  const std::string json = kGolden + name + ".json";
  return file_system().exists(json) ? json : kGolden + name + ".model";
}
// Not every build has the three libraries.
std::shared_ptr<const Tokenizer> opened(const std::string& name) {
  try {
    return open_tokenizer(path_of(name));
  } catch (const Error& e) {
    if (!contains(e.what(), "was built without")) throw;
    WARN(e.what());
    return nullptr;
  }
}

std::string drawn_bytes(size_t n, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 2, 0};
  std::string text;
  const std::string known = bytes_of(kGolden + "text.txt");
  for (size_t i = 0; i < n; ++i) {
    const uint32_t kind = draws.bits32(3 * i) % 4, x = draws.bits32(3 * i + 1), length = draws.bits32(3 * i + 2) % 8;
    if (kind == 0) text += static_cast<char>(static_cast<uint8_t>(x));
    if (kind == 1) text += known.substr(x % known.size(), length);  // may cut characters
    if (kind == 2) text += " \n\t a'1"[x % 7];
    if (kind == 3) text += std::string(length, static_cast<char>('a' + x % 3));
  }
  return text;
}

}  // namespace

TEST_CASE("Ids are those of the packages tokenizers and sentencepiece, and records keep them") {
  const std::string text = bytes_of(kGolden + "text.txt");
  const Json golden = Json::parse(bytes_of(kGolden + "ids.json"));
  CHECK(golden.size() == 6);
  for (const auto& [name, ids] : golden.members()) {
    INFO(name);
    const auto tokenizer = opened(name);
    if (tokenizer == nullptr) continue;
    CHECK(encode(*tokenizer, text) == ids.get<std::vector<int32_t>>());
    const auto again = load_tokenizer(Json::parse(tokenizer_record(*tokenizer).dump()));
    CHECK(tokenizer_difference(*tokenizer, *again).empty());
    CHECK(again->end_id() == tokenizer->end_id());
    CHECK(encode(*again, text) == ids.get<std::vector<int32_t>>());
  }
}

TEST_CASE("Byte-level BPE round-trips any bytes, also invalid UTF-8") {
  for (const std::string name : {"gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = opened(name);
    if (tokenizer == nullptr) continue;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::string text = drawn_bytes(seed < 20 ? seed : 300, seed);
      if (name != "llama3")  // their added tokens take white space, NFC changes characters
        std::erase_if(text, [](char c) { return c == '<' || static_cast<uint8_t>(c) >= 0xC0; });
      INFO(name << " seed " << seed);
      CHECK(tokenizer->decode(encode(*tokenizer, text)) == text);
    }
    std::string long_word;
    for (size_t i = 0; i < 20000; ++i) long_word += "abcz"[(i * i + i / 7) % 4];
    CHECK(tokenizer->decode(encode(*tokenizer, long_word)) == long_word);
  }
}

TEST_CASE("A model of SentencePiece decodes as the library does, without the space that it puts in front") {
  const auto tokenizer = opened("pieces_bpe");
  if (tokenizer == nullptr) return;
  const std::string text = "the  of\tprivet \xf0\x9f\x98\x80 123";
  CHECK(tokenizer->decode(encode(*tokenizer, text)) == text);
  CHECK(tokenizer->special(tokenizer->end_id()));
  CHECK(tokenizer->bytes(tokenizer->end_id()).empty());
  CHECK(contains(error_of([&] { static_cast<void>(tokenizer->bytes(100000)); }), "[sentencepiece] id: got 100000"));
}

TEST_CASE("The end of a document and other marks are known") {
  const auto tokenizer = opened("gpt2");
  if (tokenizer == nullptr) return;
  REQUIRE(tokenizer->end_id() >= 0);
  CHECK(tokenizer->bytes(tokenizer->end_id()) == "<|endoftext|>");
  CHECK(tokenizer->special(tokenizer->end_id()));
  CHECK_FALSE(tokenizer->special(encode(*tokenizer, "a")[0]));
  CHECK(encode(*tokenizer, "<|endoftext|>") == std::vector<int32_t>{tokenizer->end_id()});
  CHECK(encode(*tokenizer, "").empty());
  CHECK(make_tokenizer("bytes", "")->end_id() == -1);
}

TEST_CASE("Files that are not tokenizers are reported by name") {
  const TempDir temp;
  const auto error = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(temp.file(name), std::ios::binary) << bytes;
    const auto open = [&] { open_tokenizer(temp.file(name)); };
    CHECK(error_code_of(open) == 3);
    CHECK(contains(error_of(open), temp.file(name)));
    return error_of(open);
  };
  CHECK(contains(error("a.json", "{"), "parse error"));
  CHECK(contains(error("b.json", "[]"), "got no member 'model'"));
  if (opened("pieces_bpe") != nullptr)
    CHECK(contains(error("c.model", "no model"), "[sentencepiece] is not a SentencePiece model"));
  CHECK(contains(error("d.tokens.json", "{}"), "format_version"));
  CHECK(contains(error("d.tokens.json", R"({"format_version": 2})"), "format version 2, this program reads 1"));
  CHECK(contains(error("d.tokens.json", R"({"format_version": 1})"), "tokenizer"));
  CHECK(contains(error("e.tokens.json",
                       R"({"format_version": 1, "tokenizer": {"kind": "none", "vocabulary": 1, "content": null}})"),
                 "kind 'none' is not known"));
  CHECK(contains(error_of([&] { open_tokenizer("x.txt"); }),
                 "'x.txt': got a name with another end, expected a file of a tokenizer: .json (byte-level BPE"));
  CHECK(is_tokenizer_file("a/tokenizer.json"));
  CHECK(is_tokenizer_file("m.model"));
  CHECK_FALSE(is_tokenizer_file("chars"));
}

TEST_CASE("A damaged record is an error with the defect") {
  const auto error = [](const std::string& text) {
    const auto load = [&] { load_tokenizer(Json::parse(text)); };
    CHECK(error_code_of(load) == 3);
    return error_of(load);
  };
  CHECK(contains(error("{}"), "kind"));
  CHECK(contains(error(R"({"kind": 7})"), "record: "));
  CHECK(contains(error(R"({"kind": "chars", "vocabulary": 2})"), "content"));
  CHECK(contains(error(R"({"kind": "chars", "vocabulary": 3, "content": {"characters": "ab"}})"),
                 "chars: got 2 ids, its record counts 3"));
  CHECK(contains(error(R"({"kind": "chars", "vocabulary": 2, "content": {"characters": "ba"}})"),
                 "byte 1 of the characters: 'a' comes after 'b', expected them in ascending order"));
  CHECK(contains(error(R"({"kind": "chars", "vocabulary": 0, "content": {"characters": ""}})"), "got no characters"));
  CHECK(contains(error(R"({"kind": "bytes", "vocabulary": 300, "content": null})"),
                 "got 256 ids, its record counts 300"));
  CHECK(contains(error(R"({"kind": "bpe", "vocabulary": 3, "content": {}})"), "got no member 'model'"));
  CHECK(contains(error(R"({"kind": "sentencepiece", "vocabulary": 3, "content": {"model": "a?"}})"),
                 "[base64] got byte 63, expected base64"));
  CHECK(contains(error(R"({"kind": "sentencepiece", "vocabulary": 3, "content": {"model": "abc"}})"),
                 "got an end that is none of base64"));
}

TEST_CASE("Two tokenizers are compared by kind, by ids and by how they split") {
  const auto a = make_tokenizer("chars", "abc"), b = make_tokenizer("chars", "abd"), c = make_tokenizer("bytes", "");
  CHECK(tokenizer_difference(*a, *make_tokenizer("chars", "cab")).empty());
  CHECK(tokenizer_difference(*a, *b) == "chars of 3 ids, chars of 3 ids: id 2 is 'c', 'd'");
  CHECK(tokenizer_difference(*a, *c) == "chars of 3 ids, bytes of 256 ids");
}

TEST_CASE("Tokenizers that differ only behind the encoding are equal, those that change ids are not") {
  const auto gpt2 = opened("gpt2");
  if (gpt2 == nullptr) return;
  const TempDir temp;
  const auto changed = [&](const auto& change) {
    Json file = gpt2->content();
    change(file);
    std::ofstream(temp.file("t.json")) << file.dump();
    return tokenizer_difference(*gpt2, *open_tokenizer(temp.file("t.json")));
  };
  CHECK(changed([](Json& file) {
          file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
          file["decoder"] = nullptr;
          file["padding"] = nullptr;
          Json pairs = Json::array();
          for (const Json& merge : file.at("model").at("merges")) {
            if (!merge.is_string()) return;
            const size_t space = merge.text().find(' ');
            pairs.push_back(Json::array({merge.text().substr(0, space), merge.text().substr(space + 1)}));
          }
          file.at("model")["merges"] = pairs;
        }).empty());
  CHECK(contains(changed([](Json& file) { file["normalizer"] = {{"type", "NFC"}}; }), "in different ways"));
  CHECK(contains(changed([](Json& file) { file.at("model")["ignore_merges"] = true; }), "in different ways"));
}

TEST_CASE("Tokens that files beside a model of SentencePiece add are single ids") {
  const auto plain = opened("pieces_bpe");
  if (plain == nullptr) return;
  const TempDir temp;
  std::ofstream(temp.file("tokenizer.model"), std::ios::binary) << bytes_of(kGolden + "pieces_bpe.model");
  const int64_t n = plain->vocabulary();
  std::ofstream(temp.file("added_tokens.json")) << Json{{"<|im_start|>", n}, {"<|im_end|>", n + 1}}.dump();
  const auto tokenizer = open_tokenizer(temp.file("tokenizer.model"));
  CHECK(tokenizer->vocabulary() == n + 2);
  const auto start = static_cast<int32_t>(n);
  std::vector<int32_t> right{start};
  for (const int32_t id : encode(*plain, "the of")) right.push_back(id);
  right.push_back(start + 1);
  CHECK(encode(*tokenizer, "<|im_start|>the of<|im_end|>") == right);
  CHECK(tokenizer->decode(right) == "<|im_start|>the of<|im_end|>");
  CHECK(tokenizer->special(start));
  const auto again = load_tokenizer(Json::parse(tokenizer_record(*tokenizer).dump()));
  CHECK(encode(*again, "<|im_start|>the of<|im_end|>") == right);
  CHECK_FALSE(tokenizer_difference(*tokenizer, *plain).empty());
  std::ofstream(temp.file("added_tokens.json")) << Json{{"<|im_start|>", 5}}.dump();
  CHECK(contains(error_of([&] { open_tokenizer(temp.file("tokenizer.model")); }), "id 5 is that of the piece"));
}
