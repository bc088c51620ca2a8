// Cells of a text table: numbers, missing values, names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

enum class Cell { kName, kNumber, kNoFp32 };  // kNoFp32: a number that is not finite in fp32

// Reads a number with the decimal mark '.' or ','. A tiny number becomes 0.
Cell read_number(std::string_view field, char decimal, float& value);
// The same in double, for numbers that read_number reads.
double wide_number(std::string_view field, char decimal);
inline bool is_number(std::string_view field, char decimal = '.') {
  float value = 0;
  return read_number(field, decimal, value) != Cell::kName;
}

// What stands for a missing value by default: the list of pandas, and '?'. The empty field always does.
const std::vector<std::string>& default_missing_words();
bool is_missing(std::string_view field, const std::vector<std::string>& words);

}  // namespace bitgrad::data
