// Characters as ids: the Unicode code points that occur in a text, in ascending order, are 0, 1, 2 .. (the vocabulary
// of nanoGPT's character model). Bytes that are not well-formed UTF-8 are an error, reported with their position.
#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizers.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kChars = "chars";
constexpr size_t kRun = 4096;  // ids passed on together
constexpr int32_t kNone = -1;

// Code point of a well-formed character of 1 to 4 bytes.
uint32_t code_point(std::string_view c) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(c[i])); };
  if (c.size() == 1) return byte(0);
  uint32_t point = byte(0) & (0xFFu >> (c.size() + 1));
  for (size_t i = 1; i < c.size(); ++i) point = (point << 6) | (byte(i) & 0x3Fu);
  return point;
}

// Calls f(character, its position) front to back.
template <typename F>
void each_character(std::string_view text, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes(text.substr(at));
    if (bytes == 0)
      fail_with(ErrorCode::kData, kChars, "byte ", at, " (", static_cast<int>(static_cast<uint8_t>(text[at])),
                ") begins no well-formed UTF-8 character. Take a text in UTF-8, or tokenizer bytes.");
    f(text.substr(at, bytes), at);
    at += bytes;
  }
}

class CharsTokenizer final : public Tokenizer {
 public:
  // points: code points in ascending order.
  explicit CharsTokenizer(std::vector<std::pair<uint32_t, std::string>> points) : points_(std::move(points)) {
    ascii_.fill(kNone);
    for (size_t i = 0; i < points_.size() && points_[i].first < ascii_.size(); ++i)
      ascii_[points_[i].first] = static_cast<int32_t>(i);
  }

  std::string_view kind() const override { return kChars; }
  int64_t vocabulary() const override { return std::ssize(points_); }
  void encode(std::string_view text, const Sink& sink) const override {
    std::vector<int32_t> run;
    run.reserve(kRun);
    each_character(text, [&](std::string_view c, size_t at) {
      run.push_back(id_of(c, at));
      if (run.size() < kRun) return;
      sink(run);
      run.clear();
    });
    if (!run.empty()) sink(run);
  }
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < vocabulary(), kChars, "id: got ", id, ", expected 0 .. ", vocabulary() - 1);
    return points_[static_cast<size_t>(id)].second;
  }
  Json content() const override {
    std::string all;
    for (const auto& [point, text] : points_) all += text;
    return {{"characters", all}};
  }

 private:
  int32_t id_of(std::string_view c, size_t at) const {
    const uint32_t point = code_point(c);
    if (point < ascii_.size() && ascii_[point] != kNone) return ascii_[point];
    const auto found = std::lower_bound(points_.begin(), points_.end(), point,
                                        [](const auto& entry, uint32_t p) { return entry.first < p; });
    if (found == points_.end() || found->first != point)
      fail_with(ErrorCode::kData, kChars, "byte ", at, ": character '", c,
                "' does not occur in the text that the vocabulary was made of, which has ", points_.size(),
                " characters.");
    return static_cast<int32_t>(found - points_.begin());
  }

  std::vector<std::pair<uint32_t, std::string>> points_;
  std::array<int32_t, 128> ascii_;
};

}  // namespace

TokenizerPointer load_chars_tokenizer(const Json& content) {
  const std::string& all = content.at("characters").text();
  std::vector<std::pair<uint32_t, std::string>> points;
  each_character(all, [&](std::string_view c, size_t at) {
    if (!points.empty() && points.back().first >= code_point(c))
      fail_with(ErrorCode::kData, kChars, "byte ", at, " of the characters: '", c, "' comes after '",
                points.back().second, "', expected them in ascending order.");
    points.emplace_back(code_point(c), c);
  });
  if (points.empty()) fail_with(ErrorCode::kData, kChars, "got no characters, expected at least one.");
  return std::make_shared<CharsTokenizer>(std::move(points));
}

TokenizerPointer make_chars_tokenizer(std::string_view text) {
  constexpr size_t kPoints = 0x110000;
  std::vector<bool> occurs(kPoints);
  std::vector<std::pair<uint32_t, std::string>> points;
  each_character(text, [&](std::string_view c, size_t) {
    const uint32_t point = code_point(c);
    if (occurs[point]) return;
    occurs[point] = true;
    points.emplace_back(point, c);
  });
  if (points.empty()) fail_with(ErrorCode::kData, kChars, "the text is empty: no characters.");
  std::sort(points.begin(), points.end());
  return std::make_shared<CharsTokenizer>(std::move(points));
}

}  // namespace bitgrad::data
