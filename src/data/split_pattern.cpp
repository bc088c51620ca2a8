// Regular expressions of tokenizers by libpcre2. This file is the only user of the library.
//
// A match sees a window of the text that grows until it decides (PCRE2_PARTIAL_HARD: no match that reached its end is
// taken). The windows bound what matches look at: a pattern that reads to the end of the text at each place, such as
// a(?=[^b]*b)|a, would take hours for a megabyte, and the match limit of libpcre2 counts no loops.

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizer_text.h"

#if BITGRAD_WITH_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

#if BITGRAD_WITH_UTF8PROC
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
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

constexpr size_t kWindow = size_t{1} << 13;
constexpr size_t kFirstStack = size_t{1} << 16, kMostStack = size_t{1} << 26;  // bytes of a match that backtracks far
constexpr int64_t kMostLooked = int64_t{1} << 28;  // bytes beyond a window that all matches of a text look at, together

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

SplitPattern::SplitPattern(const std::string& pattern) {
  const std::string ours = pcre_of_oniguruma(pattern);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> lines(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (lines == nullptr) fail_with(ErrorCode::kMemory, kPattern, "libpcre2 has no memory for a pattern.");
  pcre2_set_newline(lines.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, lines.get());
  if (code == nullptr)
    fail_with(ErrorCode::kData, kPattern, "'", pattern,
              "' is not a regular expression that libpcre2 compiles: ", message_of(error),
              ours == pattern ? "." : concat(" (translated to '", ours, "')."));
  code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  // Optional: without JIT, matching is slower with the same results.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
}

namespace {

// Matches of a pattern in a text of well-formed UTF-8.
class Matches {
 public:
  Matches(const void* code, std::string_view text)
      : code_(static_cast<const pcre2_code*>(code)),
        text_(text),
        found_(pcre2_match_data_create_from_pattern(code_, nullptr), pcre2_match_data_free),
        stack_(nullptr, pcre2_jit_stack_free),
        limits_(nullptr, pcre2_match_context_free) {
    if (found_ == nullptr) fail_with(ErrorCode::kMemory, kPattern, "libpcre2 has no memory for a match.");
  }

  // Begin and end of the next match from `from` on; false if there is none.
  bool next(size_t from, size_t& begin, size_t& end) {
    for (size_t window = kWindow;; window *= 4) {
      const size_t until = boundary(from, window);
      const bool whole = until == text_.size();
      if (window > kWindow && (looked_ += static_cast<int64_t>(until - from)) > kMostLooked)
        fail_with(
            ErrorCode::kData, kPattern, "matching stopped at byte ", from, " of a text of ", text_.size(),
            ": the matches looked at ", looked_, " bytes behind their places, at most ", kMostLooked,
            ". The pattern reads far ahead at each place (an open repeat in a look-ahead), or the text has a word "
            "without an end. Cut the text into files.");
      const int rc = match(from, until, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (whole ? 0 : PCRE2_PARTIAL_HARD));
      if (!whole && (rc == PCRE2_ERROR_NOMATCH || rc == PCRE2_ERROR_PARTIAL)) continue;
      if (rc == PCRE2_ERROR_NOMATCH) return false;
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        fail_with(
            ErrorCode::kData, kPattern, "matching stopped at byte ", from, " of a text of ", text_.size(),
            ": a match needs more than ", kMostStack,
            " bytes to go back. The pattern has an open repeat of a group, or the text has a word without an end. "
            "Cut the text into files.");
      if (rc < 0)
        fail_with(ErrorCode::kData, kPattern, "matching stopped at byte ", from, " of a text of ", text_.size(), ": ",
                  message_of(rc), '.');
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(found_.get());
      if (ends[0] < from || ends[1] <= ends[0])
        fail_with(ErrorCode::kData, kPattern, "a match ends before it begins (\\K in a look-around).");
      begin = ends[0], end = ends[1];
      return true;
    }
  }

 private:
  // Matches that go back far get a stack of their own, and what follows them keeps it.
  int match(size_t from, size_t until, uint32_t options) {
    const auto run = [&] {
      return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), until, from, options, found_.get(),
                         limits_.get());
    };
    const int rc = run();
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || stack_ != nullptr) return rc;
    stack_.reset(pcre2_jit_stack_create(kFirstStack, kMostStack, nullptr));
    limits_.reset(pcre2_match_context_create(nullptr));
    if (stack_ == nullptr || limits_ == nullptr)
      fail_with(ErrorCode::kMemory, kPattern, "libpcre2 has no memory for a stack of ", kMostStack, " bytes.");
    pcre2_jit_stack_assign(limits_.get(), nullptr, stack_.get());
    return run();
  }
  // The end of a window: whole characters.
  size_t boundary(size_t from, size_t window) const {
    if (text_.size() - from <= window) return text_.size();
    size_t until = from + window;
    while ((static_cast<uint8_t>(text_[until]) & 0xC0) == 0x80) --until;
    return until;
  }

  const pcre2_code* code_;
  const std::string_view text_;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found_;
  std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack_;  // nullptr: libpcre2's own
  std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits_;
  int64_t looked_ = 0;
};

}  // namespace

void SplitPattern::split(std::string_view text, const Piece& f) const {
  each_utf8_part(text, [&](std::string_view part, bool utf8) {
    if (!utf8) return f(part, false);
    Matches matches(code_.get(), part);
    size_t done = 0;
    for (size_t begin = 0, end = 0; done < part.size() && matches.next(done, begin, end); done = end) {
      if (begin > done) f(part.substr(done, begin - done), false);
      f(part.substr(begin, end - begin), true);
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

// Unicode normalization with libutf8proc. This file is its only user.

namespace {

#if BITGRAD_WITH_UTF8PROC
std::string mapped(std::string_view text, std::string_view form) {
  const int composed = form.ends_with('C') ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  const int compatible = form.starts_with("NFK") ? UTF8PROC_COMPAT : 0;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | composed | compatible));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(out, std::free);
  if (bytes < 0) fail_with(ErrorCode::kData, "tokenizer", form, ": ", utf8proc_errmsg(bytes), '.');
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(bytes)};
}
#else
std::string mapped(std::string_view, std::string_view form) {
  fail("tokenizer", "this program was built without libutf8proc, which makes ", form,
       " of a text. Install libutf8proc-dev (scripts/setup.sh) and build it again.");
}
#endif

}  // namespace

std::string normal_form(std::string_view text, std::string_view form) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return std::string(text);
  std::string out;
  each_utf8_part(text, [&](std::string_view part, bool utf8) { out += utf8 ? mapped(part, form) : std::string(part); });
  return out;
}

}  // namespace bitgrad::data
