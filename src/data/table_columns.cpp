#include "data/table_plan.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"

namespace bitgrad::data {
namespace {

bool is_rule(std::string_view text) {
  float value = 0;
  return text == "error" || text == "mean" || text == "median" || read_number(text, '.', value) == Cell::kNumber;
}

// The numbers of a column, in order of rows.
std::vector<double> numbers_of(const CsvTable& table, int64_t column, const CsvForm& form) {
  std::vector<double> out;
  for (int64_t row = 0; row < table.rows(); ++row) {
    float value = 0;
    const std::string_view field = table.at(row, column);
    if (!is_missing(field, form.missing) && read_number(field, form.decimal, value) == Cell::kNumber)
      out.push_back(wide_number(field, form.decimal));
  }
  return out;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

ColumnCells column_cells(const CsvTable& table, int64_t column, const CsvForm& form) {
  ColumnCells out;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const std::string_view field = table.at(row, column);
    if (is_missing(field, form.missing)) {
      ++out.missing;
    } else if (is_number(field, form.decimal)) {
      ++out.numbers;
    } else {
      if (out.others++ == 0) out.first_odd = row;
      if (!number_look(field, form.decimal).plain.empty() && out.looks++ == 0) out.first_look = row;
    }
  }
  return out;
}

bool holds_names(const CsvTable& table, int64_t column, const ColumnCells& cells, const CsvForm& form) {
  const std::string name = printable(table.names[static_cast<size_t>(column)]);
  if (cells.others == 0) return false;
  const std::string most = concat("expected a number, as ", cells.numbers, " of the ", cells.numbers + cells.others,
                                  " cells of this column are. ");
  if (cells.looks * 2 > cells.others) {
    const NumberLook look = number_look(table.at(cells.first_look, column), form.decimal);
    const bool few = !look.with.empty() && cells.numbers >= cells.others;
    table.refuse(cells.first_look, column,
                 concat(few ? most + "It" : "which", " looks like a number with ", look.text(form.decimal),
                        ". If these are names: names: ", name));
  }
  if (cells.numbers < cells.others) return true;
  constexpr size_t kLongest = 40;
  const std::string_view odd = table.at(cells.first_odd, column);
  const std::string word = Json(std::string(odd.size() <= kLongest ? odd : "-")).dump();
  table.refuse(cells.first_odd, column,
               concat(most, "If it marks a missing value: missing: [", word,
                      "] with fill: mean (on a command line 'data.train.missing=[", word,
                      "]'); if the column holds names, name it in names, or leave it out by ignore: ", name));
}

std::vector<std::string> categories_of(const CsvTable& table, int64_t column, const CsvForm& form, int64_t most) {
  std::unordered_set<std::string_view> seen;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const std::string_view field = table.at(row, column);
    if (!is_missing(field, form.missing)) seen.insert(field);
    if (std::ssize(seen) > most)
      fail_with(ErrorCode::kData, kCsv, table.path, ": ", table.column_text(column), ": got more than ", most,
                " different names in ", table.rows(), " rows, the last in line ", table.lines[static_cast<size_t>(row)],
                ": '", printable(field.substr(0, 40)), "'. If it is an id or a text, leave it out: ignore: ",
                printable(table.names[static_cast<size_t>(column)]), "; categories: codes makes one feature of it.");
  }
  std::vector<std::string> out(seen.begin(), seen.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::string merged_text(const CsvTable& table, int64_t column, const CsvForm& form) {
  constexpr double kLarge = 65536;  // below, neighbors in fp32 are closer than data tell apart
  std::vector<double> values;
  bool inexact = false;
  for (const double x : numbers_of(table, column, form)) {
    if (std::abs(x) < kLarge) continue;
    values.push_back(x);
    inexact = inexact || static_cast<double>(static_cast<float>(x)) != x;
  }
  if (!inexact) return {};
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  int64_t merged = 0, at = -1;
  bool whole = false;
  for (size_t i = 1; i < values.size(); ++i) {
    if (static_cast<float>(values[i]) != static_cast<float>(values[i - 1])) continue;
    if (merged++ == 0) at = static_cast<int64_t>(i);
    whole = whole || (values[i] == std::floor(values[i]) && values[i - 1] == std::floor(values[i - 1]));
  }
  if (merged == 0 || (!whole && merged * 4 < std::ssize(values))) return {};
  const auto text = [](double x) {
    return x == std::floor(x) && std::abs(x) < 1e18 ? concat(static_cast<int64_t>(x)) : Json(x).dump();
  };
  return concat(table.path, ": ", table.column_text(column), ": ", merged, " of ", values.size(),
                " different values are equal to their neighbor in fp32, such as ",
                text(values[static_cast<size_t>(at) - 1]), " and ", text(values[static_cast<size_t>(at)]),
                ": an id or a time? Leave it out by ignore, or subtract what is common");
}

std::string vanishing_text(const CsvTable& table, int64_t column, const CsvForm& form) {
  int64_t count = 0, first = -1;
  for (int64_t row = 0; row < table.rows(); ++row) {
    float value = 0;
    const std::string_view field = table.at(row, column);
    if (is_missing(field, form.missing) || read_number(field, form.decimal, value) != Cell::kNumber || value != 0)
      continue;
    const std::string_view digits = field.substr(0, field.find_first_of("eE"));
    if (digits.find_first_of("123456789") != std::string_view::npos && count++ == 0) first = row;
  }
  if (count == 0) return {};
  return concat(table.path, ": ", table.column_text(column), ": ", count, " of ", table.rows(),
                " cells are too small for fp32 and become 0, the first in line ",
                table.lines[static_cast<size_t>(first)], ": ", printable(table.at(first, column).substr(0, 40)),
                ". Write them in a larger unit, or leave the column out by ignore");
}

FillRules::FillRules(const CsvTable& table, const Attributes& keys) : table_(table) {
  const std::string& missing = keys.text("missing");
  if (!keys.contains("fill")) {
    require(is_rule(missing), kCsv, "missing: got '", missing,
            "', expected error, or a replacement for missing values: a number, mean or median. Markers of "
            "missing values are listed in missing beside fill, such as missing: [\"-\", \"n/a\"], fill: mean.");
    common_ = missing;
    return;
  }
  for (const std::string& item : comma_list(keys.text("fill"))) {
    const size_t sign = item.rfind('=');
    const std::string rule(trimmed_field(sign == std::string::npos ? item : item.substr(sign + 1)));
    require(is_rule(rule), kCsv, "fill: got '", item,
            "', expected a number, mean, median or error, for all columns or as COLUMN=mean.");
    if (sign == std::string::npos)
      common_ = rule;
    else
      own_[table.column_of("fill", trimmed_field(item.substr(0, sign)))] = rule;
  }
}

const std::string& FillRules::rule_of(int64_t column) const {
  const auto own = own_.find(column);
  return own == own_.end() ? common_ : own->second;
}

std::optional<float> FillRules::of_numbers(int64_t column, const CsvForm& form) const {
  const std::string& rule = rule_of(column);
  if (rule == "error") return std::nullopt;
  float value = 0;
  if (read_number(rule, '.', value) == Cell::kNumber) return value;
  const std::vector<double> numbers = numbers_of(table_, column, form);
  if (numbers.empty())
    fail_with(ErrorCode::kData, kCsv, table_.path, ": ", table_.column_text(column), ": has no number, so no ", rule,
              " to replace missing values. Exclude it by ignore.");
  return static_cast<float>(rule == "mean" ? mean_of(numbers) : median_of(numbers));
}

// A column of names has no mean: its features of one_hot are all 0, and a code is a number.
std::optional<float> FillRules::of_names(int64_t column, bool one_hot) const {
  const std::string& rule = rule_of(column);
  if (rule == "error") return std::nullopt;
  if (one_hot) return 0.0f;
  float value = 0;
  return read_number(rule, '.', value) == Cell::kNumber ? std::optional(value) : std::nullopt;
}

}  // namespace bitgrad::data
