// What tokenizers do to a text before they look up tokens: patterns that split it into words (libpcre2, in the syntax
// of Hugging Face tokenizers), normal forms, added tokens.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// ---- patterns of tokenizer.json are written for Oniguruma; libpcre2, which matches them, reads some otherwise

// A pattern of PCRE2 (UTF, UCP, multiline, newline LF) that matches what `pattern` does in Oniguruma's own syntax.
// Translated: sets in sets and && (set operations), \s \w \h \b \v and their opposites, POSIX brackets, long names of
// properties, \uHHHH, (?m) (a dot that matches line ends), {,n}, {n}? and {n,m}+ (which repeats). Throws Error(kData)
// that names the construct and its place for one that has no translation.
std::string pcre_of_oniguruma(const std::string& pattern);

// ---- Unicode normalization forms (UAX #15, libutf8proc)

// `form`: NFC, NFD, NFKC or NFKD. Invalid UTF-8 bytes are left unchanged. Without libutf8proc, throws Error if `text`
// is not ASCII.
std::string normal_form(std::string_view text, std::string_view form);

// The text without the white space at its ends, as str.strip of Python.
std::string_view without_outer_spaces(std::string_view text);

// ---- added tokens: texts that are a single token wherever they occur, such as <|endoftext|>. They are matched before
// a text is split into words.

struct AddedToken {
  int32_t id = 0;
  std::string text = {};
  bool left_strip = false, right_strip = false;  // also consume the white space before or after the token
};

class AddedTokens {
 public:
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }
  // Calls f(part, id or -1) for tokens and the text between them, front to back; no part is empty. If several tokens
  // match at the same position, the longest wins.
  using Part = std::function<void(std::string_view part, int32_t id)>;
  void split(std::string_view text, const Part& f) const;
  // The same with those tokens alone whose id `takes` accepts.
  using Takes = std::function<bool(int32_t id)>;
  void split_those(std::string_view text, const Takes& takes, const Part& f) const;

 private:
  const AddedToken* at(std::string_view text, const Takes& takes) const;
  std::vector<AddedToken> tokens_;
  std::array<std::vector<size_t>, 256> by_byte_;  // first byte: token indices, longest first
};

}  // namespace bitgrad::data
