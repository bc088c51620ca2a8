// Rows of a text table (RFC 4180), for prediction and for data sets. A quoted field may hold separators, line ends and
// doubled quotes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad::data {

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

}  // namespace bitgrad::data
