// Patterns that split a text into words (libpcre2), in the syntax of Hugging Face tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace bitgrad::data {

// Const member functions may be called from several threads concurrently.
class SplitPattern {
 public:
  // Supports Unicode properties, look-ahead and (?i:...). Throws Error(kData) if the pattern does not compile, Error if
  // built without libpcre2.
  explicit SplitPattern(const std::string& pattern);
  // Calls f(piece, whether it is a match) for matches and the text between them, front to back; no piece is empty.
  // Matches do not overlap or extend over invalid UTF-8.
  using Piece = std::function<void(std::string_view piece, bool match)>;
  void split(std::string_view text, const Piece& f) const;

 private:
  std::shared_ptr<const void> code_;
};

// A pattern that matches exactly this text.
std::string literal_pattern(std::string_view text);
// Calls f(part, whether it is well-formed UTF-8) for the longest such parts, front to back.
void each_utf8_part(std::string_view text, const std::function<void(std::string_view part, bool utf8)>& f);

}  // namespace bitgrad::data
