// A text table: rows of fields with their line numbers, and the names of its columns.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv_cells.h"
#include "data/csv_rows.h"

namespace bitgrad::data {

// How the text of a table is written.
struct CsvForm {
  char separator = ',';
  char decimal = '.';
  std::string head = "auto";                                   // yes, no
  std::vector<std::string> missing = default_missing_words();  // words that stand for a missing value
  std::vector<std::string> known = {};  // a first line with one of these names is a header, if head is auto
  std::vector<std::string> asked = {};  // columns that keys name: as `known`, if they are no numbers of columns
  bool fixed = false;                   // by a model: no key changes it
};

// What the first line was taken for.
struct CsvHead {
  bool names = false;     // of columns; else the first sample
  std::string why = {};   // for messages
  bool doubtful = false;  // the other reading is likely enough for a warning
};
using CsvRow = std::vector<std::string_view>;
CsvHead guess_head(const CsvRow& first, std::span<const CsvRow> below, const CsvForm& form);
// "the first line holds the names of the columns: WHY".
std::string head_text(const CsvHead& head);

struct CsvTable {
  std::string path;
  CsvHead head;
  std::vector<std::string> names;        // column names: from the header, else "1", "2" ...
  std::vector<std::string_view> fields;  // [rows, columns]
  std::vector<int64_t> lines;            // line number of each row, from 1
  std::unique_ptr<const std::string> text;
  std::deque<std::string> unquoted;
  int64_t rows() const { return std::ssize(lines); }
  int64_t columns() const { return std::ssize(names); }
  std::string_view at(int64_t row, int64_t column) const {
    return fields[static_cast<size_t>(row * columns() + column)];
  }
  // For messages: "column 3 (age)".
  std::string column_text(int64_t column) const;
  // "x.csv:7: column 3 (age)".
  std::string place(int64_t row, int64_t column) const;
  // Throws Error(kData): "PLACE: got 'field', WHAT."
  [[noreturn]] void refuse(int64_t row, int64_t column, std::string_view what) const;
  // Finds a column by name, else by number from 1. Error(kUsage) suggests the nearest name.
  int64_t column_of(std::string_view key, std::string_view name) const;
};

// Throws Error(kData) for what is no text table, a row whose length differs from the first line, a duplicate name, and
// a table without rows.
CsvTable read_csv_table(const std::string& path, std::string text, const CsvForm& form);

// Lines of a table that are not what the first one promises: what may be wrong, and the way out (csv_lines.cpp).
// What stands between fields by the first lines of a text; comma where nothing tells.
const CsvSeparator& likely_separator(std::string_view text);
// Throws Error(kData) for a first line of one field in which something else than form.separator stands between fields,
// as far as the first lines of `text` tell.
void check_separator(const std::string& path, std::string_view text, const CsvRow& first, const CsvForm& form);

// Throws Error(kData) for `row`, the last of `rows`, whose fields are not as many as those of the first line. `second`:
// it is the line after that.
[[noreturn]] void refuse_length(const std::string& path, CsvRows& rows, const CsvRow& first, const CsvRow& row,
                                bool second, const CsvForm& form);

}  // namespace bitgrad::data
