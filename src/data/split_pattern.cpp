// Regular expressions of tokenizers by libpcre2. This file is the only user of the library.
//
// Patterns are written for Oniguruma, where \s is the Unicode property White_Space. In PCRE2, \s also matches U+180E,
// so \s and \S are expanded to explicit sets.
#include "data/split_pattern.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

#if BITGRAD_WITH_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace bitgrad::data {

void each_utf8_part(std::string_view text, const std::function<void(std::string_view part, bool utf8)>& f) {
  size_t begin = 0;
  bool utf8 = true;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes(text.substr(at));
    if (utf8 != (bytes > 0)) {
      if (at > begin) f(text.substr(begin, at - begin), utf8);
      begin = at;
      utf8 = bytes > 0;
    }
    at += bytes > 0 ? bytes : 1;
  }
  if (text.size() > begin) f(text.substr(begin), utf8);
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool word = static_cast<uint8_t>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                      (c >= 'a' && c <= 'z') || c == '_';
    if (!word) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

#if BITGRAD_WITH_PCRE2
namespace {

constexpr std::string_view kPattern = "pattern";

std::string with_written_spaces(const std::string& pattern) {
  constexpr std::string_view kSpaces =
      R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i], next = c == '\\' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 's' || (next == 'S' && !in_set)) {
      out += in_set ? concat(kSpaces) : concat(next == 's' ? "[" : "[^", kSpaces, ']');
      ++i;
      continue;
    }
    if (next == 'S') fail_with(ErrorCode::kData, kPattern, "'", pattern, "': \\S inside a set is not supported.");
    if (c == '\\') {
      out += c;
      if (++i < pattern.size()) out += pattern[i];
      continue;
    }
    if (c == '[') in_set = true;
    if (c == ']') in_set = false;
    out += c;
  }
  return out;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

SplitPattern::SplitPattern(const std::string& pattern) {
  const std::string ours = with_written_spaces(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (code == nullptr)
    fail_with(ErrorCode::kData, kPattern, "'", pattern,
              "' is no regular expression that libpcre2 compiles: ", message_of(error), '.');
  code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // optional: without JIT, matching is slower with the same results
}

void SplitPattern::split(std::string_view text, const Piece& f) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  if (found == nullptr) fail_with(ErrorCode::kMemory, kPattern, "libpcre2 has no memory for a match.");
  each_utf8_part(text, [&](std::string_view part, bool utf8) {
    if (!utf8) return f(part, false);
    size_t done = 0;
    for (size_t from = 0; from < part.size();) {
      const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(part.data()), part.size(), from,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, found.get(), nullptr);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) fail_with(ErrorCode::kData, kPattern, "matching stopped: ", message_of(rc), '.');
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(found.get());
      if (ends[0] < from || ends[1] <= ends[0])
        fail_with(ErrorCode::kData, kPattern, "a match ends before it begins (\\K in a look-around).");
      if (ends[0] > done) f(part.substr(done, ends[0] - done), false);
      f(part.substr(ends[0], ends[1] - ends[0]), true);
      from = done = ends[1];
    }
    if (part.size() > done) f(part.substr(done), false);
  });
}

#else

SplitPattern::SplitPattern(const std::string&) {
  fail("tokenizer",
       "this program was built without libpcre2, which splits texts for a tokenizer.json. Install "
       "libpcre2-dev (scripts/setup.sh) and build it again.");
}
void SplitPattern::split(std::string_view, const Piece&) const {}

#endif

}  // namespace bitgrad::data
