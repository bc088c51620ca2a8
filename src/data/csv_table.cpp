#include "data/csv_table.h"

#include <algorithm>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/csv_fields.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kCsvTable = "data.csv";

class TableReader {
 public:
  TableReader(CsvTable& table, char separator) : table_(table), separator_(separator) {}

  void read(std::string_view text, std::string_view head) {
    for (int64_t number = 1; !text.empty(); ++number) {
      const size_t end = text.find('\n');
      const std::string_view line = trimmed_field(text.substr(0, end));
      if (!line.empty()) add(line, number, head);
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
    if (table_.lines.empty())
      fail_with(ErrorCode::kData, kCsvTable, table_.path, ": got no row, expected a sample a line.");
  }

 private:
  void add(std::string_view line, int64_t number, std::string_view head) {
    std::vector<std::string> row;
    for_each_field(line, separator_, [&](int64_t index, std::string_view field) {
      if (!unquoted(field, row.emplace_back()))
        fail_with(ErrorCode::kData, kCsvTable, table_.path, ':', number, ": column ", index + 1,
                  ": got a quote that does not end with the field, expected \"...\" with quotes inside written twice.");
    });
    if (table_.names.empty()) {
      const bool names = head == "yes" || (head == "auto" && !has_number(line, separator_));
      name_columns(row, number, names);
      if (names) return;
    }
    if (std::ssize(row) != table_.columns())
      fail_with(ErrorCode::kData, kCsvTable, table_.path, ':', number, ": got ", row.size(), " fields, expected ",
                table_.columns(), " as in the first line.");
    table_.lines.push_back(number);
    for (std::string& field : row) table_.fields.push_back(std::move(field));
  }
  void name_columns(const std::vector<std::string>& row, int64_t number, bool names) {
    std::set<std::string> seen;
    for (size_t i = 0; i < row.size(); ++i) {
      table_.names.push_back(names ? row[i] : std::to_string(i + 1));
      if (!seen.insert(table_.names.back()).second)
        fail_with(ErrorCode::kData, kCsvTable, table_.path, ':', number, ": column ", i + 1, ": got the name '",
                  printable(row[i]), "' twice, expected different names.");
    }
  }

  CsvTable& table_;
  const char separator_;
};

}  // namespace

std::string CsvTable::place(int64_t row, int64_t column) const {
  const std::string number = std::to_string(column + 1);
  const std::string& name = names[static_cast<size_t>(column)];
  return concat(path, ':', lines[static_cast<size_t>(row)], ": column ", number,
                name == number ? std::string() : concat(" (", printable(name), ')'));
}

int64_t CsvTable::column_of(const std::string& key, std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return found - names.begin();
  int64_t number = 0;
  if (parse_field(name, number) && number >= 1 && number <= columns()) return number - 1;
  const std::string near = nearest_name(std::string(name), names);
  fail(kCsvTable, key, ": got '", std::string(name), "', expected the name of a column of ", path,
       ", or its number 1 .. ", columns(), '.',
       near.empty() ? std::string() : concat(" Did you mean '", printable(near), "'?"));
}

CsvTable read_csv_table(const std::string& path, std::string_view text, char separator, std::string_view head) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // UTF-8 byte order mark, written by spreadsheets
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  CsvTable table;
  table.path = path;
  TableReader(table, separator).read(text, head);
  return table;
}

bool is_missing(std::string_view field) {
  for (const std::string_view word : {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
    if (field == word) return true;
  return false;
}

std::vector<std::string> categories_of(const CsvTable& table, int64_t column) {
  std::set<std::string> values;
  bool numbers = true;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const std::string& field = table.at(row, column);
    if (is_missing(field)) continue;
    double value = 0;
    numbers = numbers && parse_field(field, value);
    values.insert(field);
  }
  if (numbers) return {};
  return {values.begin(), values.end()};
}

}  // namespace bitgrad::data
