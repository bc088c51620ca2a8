// A text table: rows of fields with their line numbers, and the contents of its columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

struct CsvTable {
  std::string path;
  std::vector<std::string> names;   // column names: from the header, else "1", "2" ...
  std::vector<std::string> fields;  // [rows, columns]
  std::vector<int64_t> lines;       // line number of each row, from 1
  int64_t rows() const { return std::ssize(lines); }
  int64_t columns() const { return std::ssize(names); }
  const std::string& at(int64_t row, int64_t column) const {
    return fields[static_cast<size_t>(row * columns() + column)];
  }
  // For messages: "x.csv:7: column 3 (age)".
  std::string place(int64_t row, int64_t column) const;
  // Finds a column by name, else by number from 1. Error(kUsage) suggests the nearest name.
  int64_t column_of(const std::string& key, std::string_view name) const;
};

// head: "auto" (a first line without any number is a header), "yes" or "no". Throws Error(kData) for an unterminated
// quote, a row whose length differs from the first line, a duplicate name, and a table without rows.
CsvTable read_csv_table(const std::string& path, std::string_view text, char separator, std::string_view head);

// Whether a field is empty, NA, N/A, NaN, null or ?.
bool is_missing(std::string_view field);

// The categories of a column, sorted bytewise; empty if every value is a number.
std::vector<std::string> categories_of(const CsvTable& table, int64_t column);

}  // namespace bitgrad::data
