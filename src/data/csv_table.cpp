#include "data/csv_table.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {

// Whether the first line of a table holds the names of its columns.

namespace {

// Whether fields are `from`, `from` + 1, ...
bool counts_up(std::span<const std::string_view> fields, size_t from) {
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i] != std::to_string(from + i)) return false;
  return true;
}

bool may_be_name(std::string_view field) {
  const auto c = static_cast<unsigned char>(field.empty() ? '0' : field[0]);
  return c >= 0x80 || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Such as "2": column 2 by a key, with or without a header.
bool is_column_number(std::string_view field, const CsvRow& first) {
  for (size_t i = 1; i <= first.size(); ++i)
    if (field == std::to_string(i)) return true;
  return false;
}

// Whether the column holds numbers alone, and one at least.
bool numbers_below(std::span<const CsvRow> below, size_t column, const CsvForm& form) {
  bool any = false;
  for (const CsvRow& row : below) {
    if (column >= row.size() || is_missing(row[column], form.missing)) continue;
    if (!is_number(row[column], form.decimal)) return false;
    any = true;
  }
  return any;
}

// What the first line is beside the lines below, where both hold numbers and names.
struct Contrast {
  int64_t fresh = 0, old = 0;      // cells above columns of names that repeat: in no line below; in one
  int64_t numbers = 0, above = 0;  // cells above numbers; above fractions for the most part
  bool whole = true;               // each number is whole, such as 2019 and 1.0
  bool apart = true;               // no cell is there twice
  std::string_view first_fresh = {};
};

double cell_value(std::string_view field, const CsvForm& form) {
  float value = 0;
  return read_number(field, form.decimal, value) == Cell::kNumber ? wide_number(field, form.decimal) : 0.5;
}

// Whether three numbers or more rise by one step, or by one factor.
bool cells_rise_evenly(const CsvRow& row, const CsvForm& form) {
  std::vector<double> values;
  for (const std::string_view field : row)
    if (is_number(field, form.decimal)) values.push_back(cell_value(field, form));
  if (values.size() < 3) return false;
  const double step = values[1] - values[0];
  bool steps = step > 0, factors = values[0] > 0 && step > 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != std::floor(values[i])) return false;
    if (i == 0) continue;
    steps = steps && values[i] - values[i - 1] == step;
    factors = factors && values[i] * values[0] == values[i - 1] * values[1];
  }
  return steps || factors;
}

Contrast contrast_of(const CsvRow& first, std::span<const CsvRow> below, const CsvForm& form) {
  Contrast out;
  const std::unordered_set<std::string_view> different(first.begin(), first.end());
  out.apart = different.size() == first.size();
  for (size_t i = 0; i < first.size(); ++i) {
    const bool number = is_number(first[i], form.decimal);
    if (number) {
      const double value = cell_value(first[i], form);
      out.whole = out.whole && value == std::floor(value);
    }
    std::unordered_set<std::string_view> names;
    int64_t count = 0, numbers = 0, fractions = 0;
    for (const CsvRow& row : below) {
      if (i >= row.size() || is_missing(row[i], form.missing)) continue;
      ++count;
      names.insert(row[i]);
      if (!is_number(row[i], form.decimal)) continue;
      ++numbers;
      const double value = cell_value(row[i], form);
      fractions += value != std::floor(value) ? 1 : 0;
    }
    if (number && numbers == count && count > 0) {
      ++out.numbers;
      out.above += fractions * 2 > count ? 1 : 0;
    } else if (numbers == 0 && std::ssize(names) * 2 <= count + 1 && count > 1 && !is_missing(first[i], form.missing)) {
      const bool there = names.count(first[i]) > 0;
      ++(there ? out.old : out.fresh);
      if (!there && out.first_fresh.empty()) out.first_fresh = first[i];
    }
  }
  return out;
}

// Of a first line that has numbers: the names of columns may be years, sizes or counts.
CsvHead head_of_numbers(const CsvRow& first, std::span<const CsvRow> below, const CsvForm& form) {
  const Contrast c = contrast_of(first, below, form);
  const bool fresh = c.fresh > 0 && c.old == 0;
  const std::string name = concat('\'', printable(c.first_fresh.substr(0, 40)), '\'');
  if (fresh && c.apart && c.whole && c.above == c.numbers)
    return {true, concat(name, " is in no line below, and its numbers are whole above fractions"), true};
  if (fresh)
    return {false, concat("it has numbers, but ", name, " is in none of the next ", below.size(), " lines"), true};
  if (!c.apart || !c.whole || c.numbers == 0) return {false, "it has numbers"};
  if (c.above > 1) return {false, "it has numbers, but whole ones above fractions", true};
  const auto rises = [&](const CsvRow& row) { return cells_rise_evenly(row, form); };
  if (rises(first) && std::none_of(below.begin(), below.end(), rises))
    return {false, "it has numbers, which rise evenly", true};
  return {false, "it has numbers"};
}

}  // namespace

CsvHead guess_head(const CsvRow& first, std::span<const CsvRow> below, const CsvForm& form) {
  if (form.head != "auto") return {form.head == "yes", concat("header: ", form.head)};
  const std::unordered_set<std::string_view> known(form.known.begin(), form.known.end());
  for (const std::string_view field : first)
    if (!field.empty() && known.count(field) > 0)
      return {true, concat("it has the name '", printable(field), "' that the model knows")};
  const auto numeric = [&](std::string_view field) { return is_number(field, form.decimal); };
  const bool index = first.front().empty();  // pandas writes no name above the numbers of rows
  const std::span<const std::string_view> fields = std::span(first).subspan(index ? 1 : 0);
  if (std::none_of(first.begin(), first.end(), numeric)) {
    bool numbers = false;
    for (size_t i = 0; i < first.size(); ++i) numbers = numbers || numbers_below(below, i, form);
    return {true, numbers ? "it has no number" : "it has no number, and neither have the lines below", !numbers};
  }
  if (!fields.empty() && counts_up(fields, 0))
    return {true, "it counts up from 0, as pandas names columns without names", true};
  for (size_t i = 0; i < first.size(); ++i)
    if (may_be_name(first[i]) && !numeric(first[i]) && !is_missing(first[i], form.missing) &&
        numbers_below(below, i, form))
      return {true, concat("'", printable(first[i].substr(0, 40)), "' is above numbers"), true};
  for (const std::string_view field : first)
    if (std::find(form.asked.begin(), form.asked.end(), field) != form.asked.end() && !is_column_number(field, first))
      return {true, concat("it has the name '", printable(field), "' that the configuration gives")};
  if (fields.size() > 1 && counts_up(fields, 1)) return {false, "it has numbers, which count up", true};
  return head_of_numbers(first, below, form);
}

std::string head_text(const CsvHead& head) {
  return concat("the first line ", head.names ? "holds the names of the columns" : "is a sample", ": ", head.why);
}

namespace {

constexpr size_t kProbed = 100;  // rows that decide about the first line

void name_columns(CsvTable& table, const CsvForm& form, const CsvRow& first, int64_t line) {
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < first.size(); ++i) {
    const bool named = table.head.names && !first[i].empty();
    table.names.push_back(named ? std::string(first[i]) : std::to_string(i + 1));
    if (named && !seen.insert(first[i]).second)
      fail_with(ErrorCode::kData, kCsv, table.path, ':', line, ": column ", i + 1, ": got the name '",
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
  fail_with(ErrorCode::kData, kCsv, place(row, column), ": got '", printable(at(row, column).substr(0, kShown)), "', ",
            what, '.');
}

int64_t CsvTable::column_of(std::string_view key, std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return found - names.begin();
  float number = 0;
  if (read_number(name, '.', number) == Cell::kNumber && number >= 1 && number <= static_cast<float>(columns()) &&
      name == std::to_string(static_cast<int64_t>(number)))
    return static_cast<int64_t>(number) - 1;
  const std::string near = head.names ? nearest_name(std::string(name), names) : std::string();
  fail(kCsv, key, ": got '", printable(name), "', expected the name of a column of ", path, ", or its number 1 .. ",
       columns(), '.',
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
  if (!rows.next(first)) fail_with(ErrorCode::kData, kCsv, path, ": got no row, expected one sample per line.");
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
  if (table.lines.empty()) fail_with(ErrorCode::kData, kCsv, path, ": got no row, expected one sample per line.");
  return table;
}

}  // namespace bitgrad::data
