#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "bitgrad/base/error.h"
#include "data/csv_table.h"

namespace bitgrad::data {

namespace {

constexpr size_t kLongestNumber = 400;

// The number with '.' as its mark; empty if it cannot be a number.
std::string_view with_point(std::string_view field, char decimal, std::array<char, kLongestNumber>& buffer) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  if (decimal == '.' || field.size() > buffer.size()) return field;
  if (field.find('.') != std::string_view::npos) return {};
  std::replace_copy(field.begin(), field.end(), buffer.begin(), decimal, '.');
  return {buffer.data(), field.size()};
}

template <typename T>
std::errc parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return end != text.data() + text.size() ? std::errc::invalid_argument : error;
}

}  // namespace

Cell read_number(std::string_view field, char decimal, float& value) {
  std::array<char, kLongestNumber> buffer;
  const std::string_view text = with_point(field, decimal, buffer);
  const std::errc error = parse(text, value);
  if (error == std::errc()) return std::isfinite(value) ? Cell::kNumber : Cell::kNoFp32;
  if (error != std::errc::result_out_of_range) return Cell::kName;
  const double wide = std::strtod(std::string(text).c_str(), nullptr);
  value = static_cast<float>(wide);
  return std::isfinite(value) ? Cell::kNumber : Cell::kNoFp32;
}

double wide_number(std::string_view field, char decimal) {
  std::array<char, kLongestNumber> buffer;
  double value = 0;
  parse(with_point(field, decimal, buffer), value);
  return value;
}

const std::vector<std::string>& default_missing_words() {
  static const std::vector<std::string> words{"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                              "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                              "NaN",  "None",   "n/a",      "nan",  "null",    "?"};
  return words;
}

bool is_missing(std::string_view field, const std::vector<std::string>& words) {
  return field.empty() || std::find(words.begin(), words.end(), field) != words.end();
}

namespace {

bool is_number_digit(char c) { return c >= '0' && c <= '9'; }

// Takes one of `marks` and the blanks beside it off an end of the text.
bool take_end(std::string& text, std::initializer_list<std::string_view> marks, bool front) {
  for (const std::string_view mark : marks) {
    if (front ? !text.starts_with(mark) : !text.ends_with(mark)) continue;
    front ? text.erase(0, mark.size()) : text.erase(text.size() - mark.size());
    for (const std::string_view blank : {" ", "\xC2\xA0", "\xE2\x80\xAF"})
      while (front ? text.starts_with(blank) : text.ends_with(blank))
        front ? text.erase(0, blank.size()) : text.erase(text.size() - blank.size());
    return true;
  }
  return false;
}

// Takes `mark` out from between groups of three digits: 1 234 567.8.
bool take_groups(std::string& text, std::string_view mark) {
  constexpr size_t kGroup = 3;
  const auto digits = [&](size_t from) {
    size_t n = 0;
    while (from + n < text.size() && is_number_digit(text[from + n])) ++n;
    return n;
  };
  size_t at = digits(0);
  if (at == 0 || at > kGroup || text[0] == '0') return false;
  std::string out = text.substr(0, at);
  bool any = false;
  while (text.compare(at, mark.size(), mark) == 0 && digits(at + mark.size()) == kGroup) {
    out += text.substr(at + mark.size(), kGroup);
    at += mark.size() + kGroup;
    any = true;
  }
  if (any) text = out + text.substr(at);
  return any;
}

// Of 0x1f; empty if it is none.
std::string decimal_of_hex(std::string_view text) {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return {};
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::to_string(value) : std::string();
}

// Whether a text without a sign is a number; ends like "inf" are not.
bool plain_number(std::string_view text, char decimal) {
  return !text.empty() && (is_number_digit(text[0]) || text[0] == decimal) && is_number(text, decimal);
}

void add_what(NumberLook& look, std::string_view what) { look.with += concat(look.with.empty() ? "" : " and ", what); }

// Takes off what stands around the number: signs, currencies, parentheses. Returns its sign.
std::string take_ends(std::string& text, NumberLook& look) {
  std::string sign;
  const auto take_sign = [&] {
    if (take_end(text, {"\xE2\x88\x92", "\xE2\x80\x93"}, true)) {
      sign = "-";
      add_what(look, "a minus sign that is not that of ASCII");
    } else if (text.starts_with('-') || text.starts_with('+')) {
      if (text[0] == '-') sign = "-";
      text.erase(0, 1);
    }
  };
  if (text.starts_with('(') && text.ends_with(')')) {
    text = text.substr(1, text.size() - 2);
    sign = "-";
    add_what(look, "parentheses for a minus sign");
  } else {
    take_sign();
  }
  const std::initializer_list<std::string_view> currencies = {"$", "\xE2\x82\xAC", "\xC2\xA3", "\xC2\xA5",
                                                              "\xE2\x82\xB9"};
  if (take_end(text, currencies, true) || take_end(text, currencies, false)) {
    add_what(look, "a currency sign");
    if (sign.empty()) take_sign();
  }
  if (take_end(text, {"%", "\xE2\x80\xB0"}, false)) add_what(look, "a percent sign");
  return sign;
}

void take_thousands(std::string& text, NumberLook& look) {
  const std::pair<std::string_view, std::string_view> marks[] = {
      {" ", "blanks"},      {"\xC2\xA0", "blanks"}, {"\xE2\x80\xAF", "blanks"},     {"\xE2\x80\x89", "blanks"},
      {"'", "apostrophes"}, {"_", "underscores"},   {"\xE2\x80\x99", "apostrophes"}};
  for (const auto& [mark, name] : marks)
    if (take_groups(text, mark)) return add_what(look, concat(name, " between thousands"));
}

// The marks ',' and '.': one between thousands, the other of the fraction.
bool read_marks(std::string text, char decimal, NumberLook& look) {
  const char other = decimal == '.' ? ',' : '.';
  const std::string_view others = other == ',' ? "commas between thousands" : "points between thousands";
  const std::string_view own = other == ',' ? "points between thousands" : "commas between thousands";
  std::string grouped = text;
  const bool groups = take_groups(grouped, std::string_view(&other, 1));
  if (plain_number(text, decimal)) {
    // as it is
  } else if (plain_number(text, other)) {
    look.other_mark = true;
    look.grouped = groups;
    if (groups) text = grouped;
  } else if (groups && plain_number(grouped, decimal)) {
    add_what(look, others);
    text = grouped;
  } else if (std::string back = text; take_groups(back, std::string_view(&decimal, 1)) && plain_number(back, other)) {
    add_what(look, own);
    look.other_mark = text.find(other) != std::string::npos;
    text = back;
  } else {
    return false;
  }
  std::replace(text.begin(), text.end(), ',', '.');
  look.plain = text;
  return true;
}

}  // namespace

NumberLook number_look(std::string_view field, char decimal) {
  constexpr size_t kLongest = 64;
  if (field.size() > kLongest || std::none_of(field.begin(), field.end(), is_number_digit)) return {};
  NumberLook look;
  std::string text(field);
  const std::string sign = take_ends(text, look);
  if (const std::string hex = decimal_of_hex(text); !hex.empty()) {
    add_what(look, "hexadecimal digits");
    look.plain = sign + hex;
    return look;
  }
  take_thousands(text, look);
  const size_t exponent = text.find_first_of("dD");
  if (exponent != std::string::npos && exponent + 1 < text.size() &&
      (text[exponent + 1] == '-' || text[exponent + 1] == '+')) {
    text[exponent] = 'e';
    add_what(look, "the letter D of an exponent");
  }
  if (!read_marks(text, decimal, look)) return {};
  look.plain = sign + look.plain;
  if (look.with.empty() && !look.other_mark) return {};  // such as "- 5"
  return look;
}

std::string NumberLook::text(char decimal) const {
  const std::string_view other = decimal == '.' ? "comma" : "point";
  if (with.empty())
    return concat(
        "a decimal ", other, ": set decimal: ", other,
        grouped ? concat("; or with ", other, "s between thousands: remove them (", plain, ')') : std::string());
  if (other_mark) return concat(with, ", and a decimal ", other, ": remove the first and set decimal: ", other);
  std::string written = plain;
  if (decimal == ',') std::replace(written.begin(), written.end(), '.', ',');
  return concat(with, ": write it as ", written);
}

}  // namespace bitgrad::data
