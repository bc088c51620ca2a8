// Text tables: their cells, their rows, and the table with the names of its columns.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

inline constexpr std::string_view kCsv = "data.csv";  // where errors say they are

// ---- cells: numbers, missing values, names

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

// Texts that people read as numbers and programs do not: 5%, $5.50, 1 234, 0x1f, 1.2D+00.
struct NumberLook {
  std::string with;         // what is no part of a plain number: "a percent sign"; may be empty beside other_mark
  std::string plain;        // the number as read_number reads it, with '.'; empty: looks like no number
  bool other_mark = false;  // the decimal mark is the other one
  bool grouped = false;     // other_mark may as well stand between thousands; plain is then the number without it
  // "a percent sign: write it as 5".
  std::string text(char decimal) const;
};
// Of a field that is no number with the mark `decimal`.
NumberLook number_look(std::string_view field, char decimal);

// ---- rows (RFC 4180), for prediction and for data sets. A quoted field may hold separators, line ends and doubled
// quotes.

// Separator of tables whose fields stand between runs of blanks and tabs.
inline constexpr char kBlankSeparator = ' ';

struct CsvSeparator {
  char mark;
  std::string_view name;    // as the key separator has it
  std::string_view plural;  // for messages
};
// What may stand between fields.
inline constexpr CsvSeparator kCsvSeparators[] = {{',', "comma", "commas"},
                                                  {';', "semicolon", "semicolons"},
                                                  {'\t', "tab", "tabs"},
                                                  {'|', "pipe", "pipes"},
                                                  {kBlankSeparator, "blank", "blanks"}};
// The mark that a first line such as "sep=;" names, which Excel reads and writes; 0: there is none.
char declared_separator(std::string_view text);

// Without blanks and carriage returns at both ends.
std::string_view trimmed_field(std::string_view text);
// The items of a list with commas, such as "id,\"a, b\"", trimmed.
std::vector<std::string> comma_list(const std::string& list);

class CsvRows {
 public:
  // `text` must outlive the rows. Throws Error(kData) that names `path` for what is no text in UTF-8 with line feeds: a
  // file of another kind, UTF-16, carriage returns alone.
  CsvRows(const std::string& path, std::string_view text, char separator);
  // The fields of the next row, without their quotes; false at the end. Skips empty lines. Throws Error(kData) for a
  // quote that does not end with its field.
  bool next(std::vector<std::string_view>& row);
  // The line of the last row, from 1.
  int64_t line() const { return begin_; }
  // Owner of fields that hold quotes; the other fields are parts of `text`.
  std::deque<std::string> take_unquoted() { return std::move(unquoted_); }

 private:
  void read_row(std::vector<std::string_view>& row);
  std::string_view quoted(size_t column);
  void skip_blanks();
  bool at_end() const { return text_.empty() || text_.front() == '\n'; }

  std::string path_;
  std::string_view text_;  // the rest
  const char separator_;
  int64_t line_ = 1, begin_ = 1;
  std::deque<std::string> unquoted_;
};

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
