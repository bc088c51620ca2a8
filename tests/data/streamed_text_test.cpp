// Text that grows: whole characters, broken ones, stop texts.
#include "bitgrad/data/tokenizer.h"

#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Some bytes for each id; the last id is a mark.
class Pieces final : public Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string_view kind() const override { return "pieces"; }
  int64_t vocabulary() const override { return std::ssize(pieces_); }
  void encode(std::string_view, const Sink&) const override {}
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < vocabulary(), "pieces", "id: got ", id);
    return pieces_[static_cast<size_t>(id)];
  }
  bool special(int32_t id) const override { return id + 1 == vocabulary(); }

 private:
  std::vector<std::string> pieces_;
};

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_bytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

// The text of bytes, given one by one; each piece is whole characters.
std::string streamed(const std::string& bytes, std::vector<std::string> stop = {}) {
  const auto tokenizer = make_tokenizer("bytes", "");
  StreamedText text(*tokenizer, std::move(stop));
  std::string out;
  for (const char byte : bytes) {
    const std::string piece = text.add(static_cast<uint8_t>(byte));
    CHECK(is_utf8(piece));
    out += piece;
  }
  const std::string rest = text.finish();
  CHECK(is_utf8(rest));
  return out + rest;
}

constexpr const char* kBad = "\xef\xbf\xbd";

}  // namespace

TEST_CASE("characters come out whole, as soon as they are") {
  const auto tokenizer = make_tokenizer("bytes", "");
  StreamedText text(*tokenizer);
  CHECK(text.add('a') == "a");
  CHECK(text.add(0xe2) == "");
  CHECK(text.add(0x82) == "");
  CHECK(text.add(0xac) == "\xe2\x82\xac");
  CHECK(text.add(0xf0) == "");
  CHECK(text.finish() == kBad);
  const std::string mixed = "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf\n";
  CHECK(streamed(mixed) == mixed);
}

TEST_CASE("bytes that are not characters become U+FFFD, one for each incomplete start") {
  const std::string bad = kBad;
  CHECK(streamed("a\xff"
                 "b") == "a" + bad + "b");
  CHECK(streamed("\xe2\x82") == bad);
  CHECK(streamed("\xe2\x82"
                 "b") == bad + "b");
  CHECK(streamed("\xe2\x82\xe2\x82\xac") == bad + "\xe2\x82\xac");
  CHECK(streamed("\xf0\x9f\x98"
                 "x") == bad + "x");
  CHECK(streamed("\xed\xa0\x80") == bad + bad + bad);  // a surrogate: no character begins with its two bytes
  CHECK(streamed("\xc0\xaf") == bad + bad);
  CHECK(streamed("\xf4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(streamed("\x80\x80") == bad + bad);
  // Any bytes give UTF-8, and those that are UTF-8 stay.
  const RandomStream draws{5, Purpose::kUser, 3, 0};
  for (uint64_t round = 0; round < 300; ++round) {
    std::string bytes;
    for (uint64_t i = 0; i < 20; ++i)
      bytes += static_cast<char>(draws.bits32(20 * round + i) >> (i % 3 == 0 ? 25 : 24));
    const std::string out = streamed(bytes);
    CHECK(is_utf8(out));
    if (is_utf8(bytes)) CHECK(out == bytes);
  }
}

TEST_CASE("a text ends before its stop text, wherever ids cut it") {
  CHECK(streamed("one. two. three", {". t"}) == "one");
  CHECK(streamed("aaab", {"aab"}) == "a");
  CHECK(streamed("no stop", {"xyz", "stops"}) == "no stop");
  CHECK(streamed("end|", {"||"}) == "end|");
  CHECK(streamed("first\n\nsecond", {"second", "\n\n"}) == "first");
  CHECK(streamed("\xe2\x82\xac\xe2\x82\xac!", {"\xe2\x82\xac!"}) == "\xe2\x82\xac");
  const Pieces tokenizer({"ab", "cd", "bc", "x", "<end>"});
  StreamedText text(tokenizer, {"bc", "dx"});
  CHECK(text.add(0) == "a");
  CHECK_FALSE(text.stopped());
  CHECK(text.add(4) == "");
  CHECK(text.add(3) == "bx");
  CHECK(text.add(0) == "a");
  CHECK(text.add(1) == "");
  CHECK(text.stopped());
  CHECK(text.add(3) == "");
  CHECK(text.finish() == "");
  CHECK(contains(error_of([&] {
                   StreamedText bad(tokenizer, {"a", ""});
                 }),
                 "[stop] got an empty text, expected one with characters"));
  CHECK(contains(error_of([&] { StreamedText(tokenizer).add(9); }), "id: got 9"));
}
