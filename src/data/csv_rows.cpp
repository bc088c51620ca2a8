#include "data/csv_table.h"

#include <algorithm>
#include <iterator>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kBlanks = " \t\r";

void check_text(const std::string& path, std::string_view text) {
  if (const std::string why = why_no_text(text); !why.empty())
    fail_with(ErrorCode::kData, kCsv, path, ": got no text table: ", why, '.');
  if (text.find('\n') == std::string_view::npos && text.find('\r') != std::string_view::npos)
    fail_with(ErrorCode::kData, kCsv, path, ": its lines end with carriage returns alone (old Macs), expected line ",
              "feeds. Save it with line ends of Unix or Windows, such as tr '\\r' '\\n'.");
  int64_t line = 1;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t bytes = byte < 0x80 ? 1 : utf8_bytes(text.substr(i, 4));
    if (byte == '\n') ++line;
    if (bytes == 0)
      fail_with(ErrorCode::kData, kCsv, path, ':', line, ": got bytes that are not UTF-8 (",
                printable(text.substr(i, 1)), "). Save it as CSV in UTF-8, such as iconv -f WINDOWS-1252 -t UTF-8.");
    i += bytes;
  }
}

}  // namespace

std::string_view trimmed_field(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

char declared_separator(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  return (line.starts_with("sep=") || line.starts_with("SEP=")) && line.size() == 5 ? line[4] : '\0';
}

std::vector<std::string> comma_list(const std::string& list) {
  std::vector<std::string_view> row;
  CsvRows rows("list", list, ',');
  if (!rows.next(row)) row = {""};
  return {row.begin(), row.end()};
}

CsvRows::CsvRows(const std::string& path, std::string_view text, char separator)
    : path_(printable(path)), text_(text), separator_(separator) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // UTF-8 byte order mark, written by spreadsheets
  if (text_.starts_with(kMark)) text_.remove_prefix(kMark.size());
  check_text(path_, text_);
  const char declared = declared_separator(text_);
  if (declared == '\0') return;
  if (declared != separator) {
    const auto known = std::find_if(std::begin(kCsvSeparators), std::end(kCsvSeparators),
                                    [&](const CsvSeparator& s) { return s.mark == declared; });
    const std::string key =
        known == std::end(kCsvSeparators) ? std::string("choose another one") : concat("set separator: ", known->name);
    fail_with(ErrorCode::kData, kCsv, path_, ":1: the first line says that '", printable({&declared, 1}),
              "' separates fields, expected '", printable({&separator, 1}), "'. In a training table ", key,
              "; elsewhere write the file with the separator of the training table.");
  }
  text_.remove_prefix(std::min(text_.find('\n'), text_.size() - 1) + 1);
  ++line_;
}

bool CsvRows::next(std::vector<std::string_view>& row) {
  bool blank = true;
  while (blank) {
    row.clear();
    if (text_.empty()) return false;
    begin_ = line_;
    const bool marks = trimmed_field(text_.substr(0, text_.find('\n'))).starts_with('"');
    read_row(row);
    blank = row.empty() || (row.size() == 1 && row[0].empty() && !marks);
  }
  return true;
}

void CsvRows::skip_blanks() {
  size_t n = 0;
  while (n < text_.size() && text_[n] != separator_ && kBlanks.find(text_[n]) != std::string_view::npos) ++n;
  text_.remove_prefix(n);
}

void CsvRows::read_row(std::vector<std::string_view>& row) {
  const bool blank = separator_ == kBlankSeparator;
  const auto skip = [&] {
    if (!blank) return skip_blanks();
    text_.remove_prefix(std::min(text_.find_first_not_of(kBlanks), text_.size()));
  };
  for (skip(); !(blank && at_end());) {
    if (text_.starts_with('"')) {
      row.push_back(quoted(row.size()));
    } else {
      size_t end = 0;
      while (end < text_.size() && text_[end] != '\n' && text_[end] != separator_ && !(blank && text_[end] == '\t'))
        ++end;
      row.push_back(trimmed_field(text_.substr(0, end)));
      text_.remove_prefix(end);
    }
    if (at_end()) break;
    text_.remove_prefix(1);
    skip();
  }
  if (!text_.empty()) text_.remove_prefix(1);
  ++line_;
}

// From the opening quote to the end of the field.
std::string_view CsvRows::quoted(size_t column) {
  const int64_t line = line_;
  size_t end = text_.find('"', 1);
  bool doubled = false;
  while (end != std::string_view::npos && end + 1 < text_.size() && text_[end + 1] == '"') {
    doubled = true;
    end = text_.find('"', end + 2);
  }
  const std::string_view field = text_.substr(1, end == std::string_view::npos ? end : end - 1);
  text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
  skip_blanks();
  if (end == std::string_view::npos || !(at_end() || text_.front() == separator_ || text_.front() == '\t'))
    fail_with(ErrorCode::kData, kCsv, path_, ':', line, ": column ", column + 1,
              ": got a quote that does not end with the field, expected \"...\" with quotes inside written twice.");
  line_ += std::count(field.begin(), field.end(), '\n');
  if (!doubled) return field;
  std::string& out = unquoted_.emplace_back();
  for (size_t i = 0; i < field.size(); ++i) {
    out += field[i];
    if (field[i] == '"') ++i;
  }
  return out;
}

}  // namespace bitgrad::data
