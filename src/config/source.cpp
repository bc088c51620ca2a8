// Lines, marks and byte checks of a text. CRLF is read as LF; a UTF-8 byte order mark is skipped; a lone CR is a
// control character.
#include "config/source.h"

#include <algorithm>
#include <optional>

#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"

namespace bitgrad::config {
namespace {

bool starts_with_wide_bom(std::string_view s) {
  using namespace std::string_view_literals;
  return s.starts_with("\xFF\xFE"sv) || s.starts_with("\xFE\xFF"sv) || s.starts_with("\0\0\xFE\xFF"sv);
}

}  // namespace

SourceText::SourceText(std::string_view text, int argument, size_t value_begin) : argument_(argument) {
  if (text.size() > kMaxBytes) {
    refusal_ = concat("the text has ", text.size(), " bytes; a configuration has at most ", kMaxBytes);
    text = {};
  } else if (starts_with_wide_bom(text)) {
    refusal_ = "the file is UTF-16 or UTF-32; save it as UTF-8";
    text = {};
  }
  if (argument <= 0 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text_.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (argument <= 0 && text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text_ += text[i];
  }
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  characters_before_.reserve(text_.size() + 1);
  uint32_t characters = 0;
  for (char c : text_) {
    characters_before_.push_back(characters);
    if ((c & 0xC0) != 0x80) ++characters;
  }
  characters_before_.push_back(characters);
  prepared_ = text_;
  std::fill_n(prepared_.begin(), std::min(value_begin, prepared_.size()), ' ');
  protect_commas();
}

// For name(number,number). Only letters, digits, blanks, signs and dots may occur in the parentheses, so that no quote,
// comment or nested collection is touched. A match inside quotes is undone when the value is read; one inside a comment
// is never seen.
void SourceText::protect_commas() {
  const auto inside = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("+-._ ,").find(c) != std::string_view::npos;
  };
  for (size_t open = prepared_.find('('); open != std::string::npos; open = prepared_.find('(', open + 1)) {
    size_t close = open + 1;
    while (close < prepared_.size() && inside(prepared_[close])) ++close;
    if (close < prepared_.size() && prepared_[close] == ')')
      std::replace(prepared_.begin() + static_cast<std::ptrdiff_t>(open),
                   prepared_.begin() + static_cast<std::ptrdiff_t>(close), ',', kProtectedComma);
    else
      open = close - 1;
  }
}

std::string_view SourceText::line(int number) const {
  if (number < 0 || number >= line_count()) return {};
  const size_t begin = line_starts_[number];
  const size_t end = number + 1 < line_count() ? line_starts_[number + 1] - 1 : text_.size();
  return std::string_view(text_).substr(begin, end - begin);
}

char SourceText::byte_at(int number, int byte_column) const {
  const std::string_view s = line(number);
  return byte_column >= 0 && static_cast<size_t>(byte_column) < s.size() ? s[byte_column] : '\0';
}

SourceMark SourceText::mark(int number, int byte_column) const {
  number = std::clamp(number, 0, line_count() - 1);
  const size_t begin = line_starts_[number];
  const size_t at = begin + std::min(line(number).size(), static_cast<size_t>(std::max(byte_column, 0)));
  return {argument_, number + 1, static_cast<int>(characters_before_[at] - characters_before_[begin]) + 1};
}

bool SourceText::quote_is_closed(int number, int byte_column) const {
  size_t i = line_starts_[number] + static_cast<size_t>(byte_column);
  const char quote = text_[i];
  for (++i; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\')
      ++i;
    else if (text_[i] == quote && quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote)
      ++i;
    else if (text_[i] == quote)
      return true;
  }
  return false;
}

bool SourceText::ends_after(int number, int byte_column) const {
  return number >= line_count() ||
         text_.find_first_not_of(" \n", line_starts_[number] + static_cast<size_t>(byte_column)) == std::string::npos;
}

size_t SourceText::byte_column(SourceMark mark) const {
  const size_t begin = line_starts_[std::clamp(mark.line - 1, 0, line_count() - 1)];
  const size_t size = line(mark.line - 1).size();
  const uint32_t wanted = characters_before_[begin] + static_cast<uint32_t>(mark.col - 1);
  const auto first = characters_before_.begin() + static_cast<std::ptrdiff_t>(begin);
  return static_cast<size_t>(std::lower_bound(first, first + static_cast<std::ptrdiff_t>(size), wanted) - first);
}

std::vector<ConfigDiagnostic> SourceText::bad_bytes() const {
  if (!refusal_.empty()) return {{{argument_, 1, 1}, refusal_}};
  if (const std::optional<FileKind> other = known_file_kind(text_))
    return {{{argument_, 1, 1}, concat("expected a configuration in YAML: this is ", other->name)}};
  for (int number = 0; number < line_count(); ++number) {
    const std::string_view s = line(number);
    bool indentation = true;
    for (size_t i = 0; i < s.size();) {
      const uint8_t c = static_cast<uint8_t>(s[i]);
      const auto refuse = [&](std::string message) {
        return std::vector<ConfigDiagnostic>{{mark(number, static_cast<int>(i)), std::move(message)}};
      };
      if (c == '\t' && indentation) return refuse("a tab as indentation; YAML indents with spaces");
      if (c != ' ') indentation = false;
      if ((c < 0x20 && c != '\t') || c == 0x7F)
        return refuse(concat("control character with code ", static_cast<int>(c), "; use spaces and plain text"));
      const size_t length = utf8_bytes(s.substr(i));
      if (length == 0)
        return refuse(concat("byte ", static_cast<int>(c), " is not valid UTF-8; save the file as UTF-8"));
      i += length;
    }
  }
  return {};
}

}  // namespace bitgrad::config
