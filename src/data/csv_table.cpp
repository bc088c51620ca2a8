#include "data/csv_table.h"

#include <algorithm>
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kCsvTable = "data.csv";
constexpr size_t kProbed = 100;  // rows that decide about the first line

void name_columns(CsvTable& table, const CsvForm& form, const CsvRow& first, int64_t line) {
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < first.size(); ++i) {
    const bool named = table.head.names && !first[i].empty();
    table.names.push_back(named ? std::string(first[i]) : std::to_string(i + 1));
    if (named && !seen.insert(first[i]).second)
      fail_with(ErrorCode::kData, kCsvTable, table.path, ':', line, ": column ", i + 1, ": got the name '",
                printable(first[i]), "' twice, expected different names.",
                form.head == "auto" && !form.fixed ? " If the first line is a sample, set header: no." : "");
  }
}

}  // namespace

std::string CsvTable::column_text(int64_t column) const {
  const std::string number = std::to_string(column + 1);
  const std::string& name = names[static_cast<size_t>(column)];
  return concat("column ", number, name == number ? std::string() : concat(" (", printable(name), ')'));
}

std::string CsvTable::place(int64_t row, int64_t column) const {
  return concat(path, ':', lines[static_cast<size_t>(row)], ": ", column_text(column));
}

void CsvTable::refuse(int64_t row, int64_t column, std::string_view what) const {
  constexpr size_t kShown = 40;
  fail_with(ErrorCode::kData, kCsvTable, place(row, column), ": got '", printable(at(row, column).substr(0, kShown)),
            "', ", what, '.');
}

int64_t CsvTable::column_of(std::string_view key, std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return found - names.begin();
  float number = 0;
  if (read_number(name, '.', number) == Cell::kNumber && number >= 1 && number <= static_cast<float>(columns()) &&
      name == std::to_string(static_cast<int64_t>(number)))
    return static_cast<int64_t>(number) - 1;
  const std::string near = head.names ? nearest_name(std::string(name), names) : std::string();
  fail(kCsvTable, key, ": got '", printable(name), "', expected the name of a column of ", path,
       ", or its number 1 .. ", columns(), '.',
       !head.names
           ? concat(' ', "Its columns have no names, as ", head_text(head), ". If it holds them, set header: yes.")
       : near.empty() ? std::string()
                      : concat(" Did you mean '", printable(near), "'?"));
}

CsvTable read_csv_table(const std::string& file, std::string text, const CsvForm& form) {
  const std::string path = printable(file);  // in messages
  CsvTable table;
  table.path = printable(path);
  table.text = std::make_unique<const std::string>(std::move(text));
  CsvRows rows(path, *table.text, form.separator);
  CsvRow first, row;
  if (!rows.next(first)) fail_with(ErrorCode::kData, kCsvTable, path, ": got no row, expected one sample per line.");
  const int64_t line = rows.line();
  check_separator(path, *table.text, first, form);
  std::vector<CsvRow> below;
  while (rows.next(row)) {
    if (row.size() != first.size()) refuse_length(path, rows, first, row, below.empty(), form);
    if (below.size() < kProbed) below.push_back(row);
    table.lines.push_back(rows.line());
    table.fields.insert(table.fields.end(), row.begin(), row.end());
  }
  table.unquoted = rows.take_unquoted();
  table.head = guess_head(first, below, form);
  name_columns(table, form, first, line);
  if (!table.head.names) {
    table.lines.insert(table.lines.begin(), line);
    table.fields.insert(table.fields.begin(), first.begin(), first.end());
  }
  if (table.lines.empty()) fail_with(ErrorCode::kData, kCsvTable, path, ": got no row, expected one sample per line.");
  return table;
}

}  // namespace bitgrad::data
