#include "bitgrad/base/text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

namespace bitgrad {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

// Bytes of the character at the start of `text`, or 0 if it is invalid or a control character.
size_t shown_bytes(std::string_view text) {
  const size_t bytes = utf8_bytes(text);
  if (bytes == 0) return 0;
  const auto first = static_cast<uint8_t>(text[0]);
  const bool control =
      bytes == 1 ? first < 0x20 || first == 0x7F : first == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0;
  return control ? 0 : bytes;
}

// The escape of a character of three bytes that ends a line (U+2028, U+2029) or turns the direction of writing (U+200E,
// U+200F, U+202A to U+202E, U+2066 to U+2069); empty for others. All begin with the bytes E2 80 or E2 81.
std::string escape_of_direction(std::string_view character) {
  if (character.size() != 3 || static_cast<uint8_t>(character[0]) != 0xE2) return "";
  const uint32_t code =
      0x2000 | (static_cast<uint8_t>(character[1]) & 0x3Fu) << 6 | (static_cast<uint8_t>(character[2]) & 0x3Fu);
  const bool turns =
      code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  if (!turns) return "";
  std::string out = "\\u{";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(code >> shift) & 15u];
  return out + '}';
}

std::string shown(std::string_view text, std::string_view keep) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto byte = static_cast<uint8_t>(text[0]);
    const size_t bytes = keep.find(text[0]) != std::string_view::npos ? 1 : shown_bytes(text);
    if (byte == '\n' && bytes == 0)
      out.append("\\n");
    else if (byte == '\t' && bytes == 0)
      out.append("\\t");
    else if (bytes == 0)
      out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15u]);
    else if (const std::string escape = escape_of_direction(text.substr(0, bytes)); !escape.empty())
      out.append(escape);
    else
      out.append(text.substr(0, bytes));
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace

size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  uint8_t min = 0x80, max = 0xBF;  // range of the second byte
  if (first == 0xE0) min = 0xA0;
  if (first == 0xED) max = 0x9F;
  if (first == 0xF0) min = 0x90;
  if (first == 0xF4) max = 0x8F;
  if (byte(1) < min || byte(1) > max) return 0;
  for (size_t i = 2; i < bytes; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return bytes;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = 2 + static_cast<int>(name.size()) / 3;
  for (const std::string& k : known) {
    const int distance = edit_distance(name, k);
    if (distance < best_distance) {
      best = k;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  std::string out = "unknown " + std::string(what) + " '" + printable(name) + "'.";
  const std::string near = nearest_name(name, known);
  if (!near.empty()) out += " Did you mean '" + near + "'?";
  out += " Known:";
  for (size_t i = 0; i < known.size(); ++i) out += (i ? ", " : " ") + known[i];
  return out;
}

std::string printable(std::string_view text) { return shown(text, ""); }
std::string printable_lines(std::string_view text) { return shown(text, "\n\t"); }

std::string text_table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> lines = cells;
  for (auto& line : lines)
    for (std::string& cell : line) cell = printable(cell);
  std::vector<size_t> width;
  for (const auto& line : lines) {
    width.resize(std::max(width.size(), line.size()), 0);
    for (size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string table;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += line[i] + std::string(width[i] - line[i].size() + 2, ' ');
    table += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
  }
  return table;
}

namespace {

// Where the last column of a line begins; half the width and further right is no column to indent to.
size_t last_column(std::string_view line, size_t width) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  size_t column = begin;
  for (size_t i = begin; i + 2 < line.size() && i < width / 2; ++i)
    if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ') column = i + 2;
  return column;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string wrapped_line(std::string_view line, size_t width) {
  const size_t column = last_column(line, width);
  std::string out(line.substr(0, column));
  size_t used = characters(out);
  bool empty = true;  // no word of this line yet
  for (size_t i = column; i < line.size();) {
    const size_t word_begin = std::min(line.find_first_not_of(' ', i), line.size());
    const size_t word_end = std::min(line.find(' ', word_begin), line.size());
    const size_t needed = characters(line.substr(i, word_end - i));
    if (used + needed > width && !empty) {
      out += '\n' + std::string(column, ' ');
      used = column;
      i = word_begin;
      empty = true;
      continue;
    }
    out += line.substr(i, word_end - i);
    used += needed;
    empty = false;
    i = word_end;
  }
  return out;
}

}  // namespace

std::string wrap_lines(std::string_view text, size_t width) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    out += characters(line) > width ? wrapped_line(line, width) : std::string(line);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// Skips digits; returns their number.
size_t skip_digits(std::string_view& s) {
  const auto end = std::find_if_not(s.begin(), s.end(), digit);
  const size_t n = static_cast<size_t>(end - s.begin());
  s.remove_prefix(n);
  return n;
}

void skip_sign(std::string_view& s) {
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) s.remove_prefix(1);
}

bool leading_zero(std::string_view s) { return s.size() > 1 && s[0] == '0' && digit(s[1]); }

bool is_decimal(std::string_view s) {
  skip_sign(s);
  if (leading_zero(s)) return false;
  size_t digits = skip_digits(s);
  if (s.starts_with('.')) {
    s.remove_prefix(1);
    digits += skip_digits(s);
  }
  if (digits == 0) return false;
  if (s.starts_with('e') || s.starts_with('E')) {
    s.remove_prefix(1);
    skip_sign(s);
    if (skip_digits(s) == 0) return false;
  }
  return s.empty();
}

// from_chars does not accept '+'.
std::string_view without_plus(std::string_view s) { return s.starts_with('+') ? s.substr(1) : s; }

}  // namespace

NumberResult parse_whole(std::string_view text, int64_t& value) {
  std::string_view s = text;
  skip_sign(s);
  if (leading_zero(s) || skip_digits(s) == 0 || !s.empty()) return NumberResult::kNotANumber;
  text = without_plus(text);
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? NumberResult::kOk
                                                                                          : NumberResult::kTooLarge;
}

NumberResult parse_decimal(std::string_view text, double& value) {
  if (!is_decimal(text)) return NumberResult::kNotANumber;
  text = without_plus(text);
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? NumberResult::kOk
                                                                                          : NumberResult::kTooLarge;
}

namespace {

template <typename T>
std::string shortest(T value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

}  // namespace

std::string number_text(double value) { return shortest(value); }
std::string number_text(float value) { return shortest(value); }

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace bitgrad
