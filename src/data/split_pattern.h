// Patterns that cut a text into words (libpcre2), as the tokenizers of Hugging Face write them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace bitgrad::data {

// Const calls may come from several threads at once.
class SplitPattern {
 public:
  // Unicode properties, look-ahead, (?i:...). Error(kData) for a pattern that does not compile, Error for a build
  // without libpcre2.
  explicit SplitPattern(const std::string& pattern);
  // f(piece, whether it is a match) for what lies between matches and for matches, from front to back; none is empty.
  // Matches neither overlap nor reach over bytes that are no UTF-8.
  using Piece = std::function<void(std::string_view piece, bool match)>;
  void split(std::string_view text, const Piece& f) const;

 private:
  std::shared_ptr<const void> code_;
};

// A pattern that matches this text alone.
std::string literal_pattern(std::string_view text);
// f(part, whether it is well-formed UTF-8): the longest such parts, from front to back.
void each_utf8_part(std::string_view text, const std::function<void(std::string_view part, bool utf8)>& f);

}  // namespace bitgrad::data
