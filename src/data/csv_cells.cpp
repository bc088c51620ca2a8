#include "data/csv_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

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

}  // namespace bitgrad::data
