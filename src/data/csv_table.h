// A table of text: rows of fields with the lines that they come from, and what its columns hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

struct CsvTable {
  std::string path;
  std::vector<std::string> names;   // of the columns: of the head, else "1", "2" ...
  std::vector<std::string> fields;  // [rows, columns]
  std::vector<int64_t> lines;       // of each row, from 1
  int64_t rows() const { return std::ssize(lines); }
  int64_t columns() const { return std::ssize(names); }
  const std::string& at(int64_t row, int64_t column) const {
    return fields[static_cast<size_t>(row * columns() + column)];
  }
  // "x.csv:7: column 3 (age)"
  std::string place(int64_t row, int64_t column) const;
  // By name, else by number from 1. Error(kUsage) that names the nearest.
  int64_t column_of(const std::string& key, std::string_view name) const;
};

// head: "auto" (a first line without any number), "yes" or "no". Error(kData) for a quote without an end, a row of
// another length than the first line, a name that stands twice, and a table without rows.
CsvTable read_csv_table(const std::string& path, std::string_view text, char separator, std::string_view head);

// An empty field, NA, N/A, NaN, null and ?.
bool is_missing(std::string_view field);

// Names of the values of a column, sorted by their bytes; empty where every value is a number.
std::vector<std::string> categories_of(const CsvTable& table, int64_t column);

}  // namespace bitgrad::data
