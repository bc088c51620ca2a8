#include "config/numbers.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace bitgrad::config {
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

bool is_name(std::string_view text) {
  const auto ok = [](char c) {
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), ok);
}

}  // namespace bitgrad::config
