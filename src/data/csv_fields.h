// Lines and fields of comma-separated values (RFC 4180), for prediction and for data sets. A quoted field may contain
// separators and doubled quotes, but no line break.
#pragma once

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

namespace bitgrad::data {

inline std::string_view trimmed_field(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Calls f(index, field) for each field of a line. Fields keep their quotes.
template <typename F>
void for_each_field(std::string_view line, char separator, F&& f) {
  for (int64_t index = 0;; ++index) {
    bool quoted = false;
    size_t end = 0;
    for (; end < line.size() && (quoted || line[end] != separator); ++end) quoted = quoted != (line[end] == '"');
    f(index, trimmed_field(line.substr(0, end)));
    if (end == line.size()) return;
    line.remove_prefix(end + 1);
  }
}

// Removes quotes; returns false if the closing quote is missing or not at the end of the field.
inline bool unquoted(std::string_view field, std::string& out) {
  out.clear();
  if (!field.starts_with('"')) {
    out = field;
    return true;
  }
  for (size_t i = 1; i < field.size(); ++i) {
    if (field[i] != '"') {
      out += field[i];
    } else if (i + 1 < field.size() && field[i + 1] == '"') {
      out += field[i++];
    } else {
      return i + 1 == field.size();
    }
  }
  return false;
}

template <typename T>
bool parse_field(std::string_view field, T& value) {
  if (field.starts_with('+')) field.remove_prefix(1);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size();
}

// Whether any field is a number, even one out of range. A first line without numbers is a header.
inline bool has_number(std::string_view line, char separator = ',') {
  bool any = false;
  for_each_field(line, separator, [&](int64_t, std::string_view field) {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    any = any || (error != std::errc::invalid_argument && end == field.data() + field.size());
  });
  return any;
}

}  // namespace bitgrad::data
