// Tokenizers: characters and bytes, there and back.
#include "bitgrad/data/tokenizer.h"

#include "bitgrad/base/rng.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// A character of each length in UTF-8, and the ends of each length's range.
const std::vector<std::string> kCharacters = {std::string(1, '\0'),
                                              "\n",
                                              " ",
                                              "a",
                                              "\x7f",
                                              "\xc2\x80",
                                              "\xc3\xa9",
                                              "\xdf\xbf",
                                              "\xe0\xa0\x80",
                                              "\xe2\x82\xac",
                                              "\xed\x9f\xbf",
                                              "\xee\x80\x80",
                                              "\xef\xbf\xbf",
                                              "\xf0\x90\x80\x80",
                                              "\xf0\x9f\x98\x80",
                                              "\xf4\x8f\xbf\xbf"};

std::string drawn_text(size_t length, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  std::string text;
  for (size_t i = 0; i < length; ++i) text += kCharacters[draws.bits32(i) % kCharacters.size()];
  return text;
}

}  // namespace

TEST_CASE("Characters are ids in the order of their code points, and come back") {
  const auto tokenizer = make_tokenizer("chars", "First: \xe2\x82\xac or \xc3\xa9?");
  const std::string points = " :?Fiorst\xc3\xa9\xe2\x82\xac";
  CHECK(tokenizer->vocabulary() == 11);
  const std::vector<int32_t> ids = encode(*tokenizer, points);
  for (size_t i = 0; i < ids.size(); ++i) CHECK(ids[i] == static_cast<int32_t>(i));
  CHECK(tokenizer->decode(ids) == points);
  CHECK(tokenizer->bytes(10) == "\xe2\x82\xac");
  CHECK(encode(*tokenizer, "").empty());
}

TEST_CASE("Any UTF-8 text is what its ids decode to, also past the runs that are handed on together") {
  for (const size_t length : {size_t{1}, size_t{17}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{9000}}) {
    const std::string text = drawn_text(length, length);
    for (const std::string kind : {"chars", "bytes"}) {
      INFO(kind << ' ' << length);
      const auto tokenizer = make_tokenizer(kind, text);
      const std::vector<int32_t> ids = encode(*tokenizer, text);
      CHECK(ids.size() == (kind == "chars" ? length : text.size()));
      CHECK(tokenizer->decode(ids) == text);
    }
  }
}

TEST_CASE("Bytes are their own ids, of any text") {
  const auto tokenizer = make_tokenizer("bytes", "");
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::vector<int32_t> ids = encode(*tokenizer, all);
  CHECK(tokenizer->vocabulary() == 256);
  for (size_t i = 0; i < ids.size(); ++i) CHECK(ids[i] == static_cast<int32_t>(i));
  CHECK(tokenizer->decode(ids) == all);
}

TEST_CASE("Invalid UTF-8, unknown characters and unknown ids are errors with their place") {
  for (const std::string bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe2\x82"})
    CHECK(contains(error_of([&] { make_tokenizer("chars", "ab" + bad); }),
                   "[chars] byte 2 (" + std::to_string(static_cast<uint8_t>(bad[0])) +
                       ") begins no well-formed UTF-8 character. Take a text in UTF-8, or tokenizer bytes."));
  const auto tokenizer = make_tokenizer("chars", "abc");
  CHECK(
      contains(error_of([&] { encode(*tokenizer, "ab\xc3\xa9"); }),
               "[chars] byte 2: character '\xc3\xa9' does not occur in the text that the vocabulary was made of, which "
               "has 3 characters."));
  CHECK(contains(error_of([&] { encode(*tokenizer, "d"); }), "byte 0: character 'd' does not occur"));
  CHECK(contains(error_of([&] { static_cast<void>(tokenizer->bytes(3)); }), "[chars] id: got 3, expected 0 .. 2"));
  CHECK(contains(error_of([&] { static_cast<void>(make_tokenizer("bytes", "")->bytes(-1)); }),
                 "[bytes] id: got -1, expected 0 .. 255"));
  CHECK(contains(error_of([&] { make_tokenizer("chars", ""); }), "[chars] the text is empty"));
  CHECK(contains(error_of([&] { make_tokenizer("char", "a"); }), "unknown tokenizer 'char'. Did you mean 'chars'?"));
}

TEST_CASE("A program adds a tokenizer by its name") {
  class Words final : public Tokenizer {
   public:
    std::string_view kind() const override { return "two_words"; }
    int64_t vocabulary() const override { return 2; }
    void encode(std::string_view text, const Sink& sink) const override {
      for (size_t at = 0; at + 1 < text.size(); at += 2) {
        const int32_t id = text.substr(at, 2) == "ja" ? 1 : 0;
        sink({&id, 1});
      }
    }
    std::string_view bytes(int32_t id) const override { return id == 1 ? "ja" : "no"; }
  };
  const auto make = [](std::string_view) { return std::make_shared<Words>(); };
  register_tokenizer({"two_words", "ja and no", make});
  const auto tokenizer = make_tokenizer("two_words", "");
  CHECK(encode(*tokenizer, "janoja") == std::vector<int32_t>{1, 0, 1});
  CHECK(contains(error_of([&] { tokenizer_record(*tokenizer); }), "kind 'two_words' has no load function"));
  CHECK(contains(error_of([&] { make_tokenizer("bpe", ""); }), "unknown tokenizer 'bpe'"));
  CHECK(contains(error_of([&] { register_tokenizer({"chars", "", make}); }), "a tokenizer 'chars' exists already"));
  CHECK(contains(error_of([&] {
                   register_tokenizer({"another", "", nullptr});
                 }),
                 "has neither a make function nor an open function"));
  CHECK(contains(error_of([&] { register_tokenizer({"Not a word", "", make}); }), "register_tokenizer"));
}
