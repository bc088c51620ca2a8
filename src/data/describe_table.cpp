// What a text table holds: its first line, and what each column would be taken for.
#include <map>
#include <ostream>
#include <unordered_map>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"
#include "data/describe_parts.h"
#include "data/table_plan.h"

namespace bitgrad::data {
namespace {

constexpr size_t kShownClasses = 20;
constexpr int64_t kMostCounted = 10000;  // different names of a column
constexpr int64_t kMostListed = 1000;    // of them with their counts
constexpr int64_t kMostColumns = 1000;   // described of a table

// Names and how often they occur, by bytes; null for more than kMostCounted different ones, their number
// for more than kMostListed.
Json name_counts(const CsvTable& table, int64_t c, const CsvForm& form) {
  std::unordered_map<std::string_view, int64_t> counts;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const std::string_view field = table.at(row, c);
    if (is_missing(field, form.missing)) continue;
    if (std::ssize(counts) >= kMostCounted && counts.count(field) == 0) return nullptr;
    ++counts[field];
  }
  if (std::ssize(counts) > kMostListed) return std::ssize(counts);
  Json out = Json::object();
  for (const auto& [name, count] : std::map<std::string_view, int64_t>(counts.begin(), counts.end()))
    out[printable(name)] = count;
  return out;
}

Json column_json(const CsvTable& table, int64_t c, const CsvForm& form) {
  const ColumnCells cells = column_cells(table, c, form);
  Json column{{"name", printable(table.names[static_cast<size_t>(c)])}, {"missing", cells.missing}};
  bool names = false;
  try {
    names = holds_names(table, c, cells, form);
  } catch (const Error& error) {  // what training would say
    column["error"] = std::string(error.what());
    names = cells.others > cells.numbers;
  }
  if (names) {
    const Json counts = name_counts(table, c, form);
    if (counts.is_null())
      column["more_names_than"] = kMostCounted;
    else
      column[counts.is_integer() ? "names" : "categories"] = counts;
    if (cells.numbers > 0) column["numbers"] = cells.numbers;
    return column;
  }
  std::vector<float> numbers;
  for (int64_t row = 0; row < table.rows(); ++row) {
    float value = 0;
    const std::string_view field = table.at(row, c);
    if (!is_missing(field, form.missing) && read_number(field, form.decimal, value) != Cell::kName)
      numbers.push_back(value);
  }
  if (!numbers.empty()) add_spread(column, spread_of(numbers, 0, 1));
  for (const std::string& text : {merged_text(table, c, form), vanishing_text(table, c, form)})
    if (!text.empty()) column["warning"] = text;
  return column;
}

Json table_json(const CsvTable& table, const CsvForm& form, std::string_view separator) {
  Json columns = Json::array();
  for (int64_t c = 0; c < std::min(table.columns(), kMostColumns); ++c) columns.push_back(column_json(table, c, form));
  return {{"format", "csv"},
          {"rows", table.rows()},
          {"width", table.columns()},
          {"separator", std::string(separator)},
          {"first_line", head_text(table.head)},
          {"columns", columns}};
}

}  // namespace

Json describe_table(const std::string& path, std::string text) {
  const CsvSeparator& separator = why_no_text(text).empty() ? likely_separator(text) : kCsvSeparators[0];
  CsvForm form;
  form.separator = separator.mark;
  return table_json(read_csv_table(path, std::move(text), form), form, separator.name);
}

std::string counts_text(const Json& counts) {
  TextWriter out;
  for (size_t i = 0; i < std::min(counts.size(), kShownClasses); ++i) {
    const bool named = counts.is_object();
    out << ' ' << (named ? counts.members()[i].first : concat(i)) << " ("
        << (named ? counts.members()[i].second : counts.at(i)) << ')';
  }
  if (counts.size() > kShownClasses) out << " ...";
  return out.str();
}

std::string spread_text(const Json& j) {
  const auto number = [&](std::string_view name) { return j.at(name).get<double>(); };
  return concat(number("least"), " .. ", number("largest"), ", mean ", static_cast<float>(number("mean")), ", std ",
                static_cast<float>(number("std")));
}

void write_cifar(std::ostream& out, const Json& j) {
  out << ", samples:" << counts_text(j.at("samples")) << '\n';
  for (const auto& [file, names] : j.at("class_names").members()) {
    out << file << ':';
    for (size_t i = 0; i < std::min(names.size(), kShownClasses); ++i)
      out << (i == 0 ? " " : ", ") << names.at(i).text();
    if (names.size() > kShownClasses) out << " ...";
    out << (names.size() > 0
                ? ""
                : " not in the folder: predictions print numbers of classes, unless data.class_names names them")
        << '\n';
  }
}

void write_table(std::ostream& out, const Json& j) {
  out << ", " << j.at("rows") << " rows, " << j.at("width") << " columns, separator " << j.at("separator").text()
      << '\n'
      << j.at("first_line").text() << '\n';
  int64_t number = 0;
  for (const Json& column : j.at("columns")) {
    out << "column " << ++number << ' ' << column.at("name").text() << ": ";
    if (column.at("missing") > 0) out << column.at("missing") << " missing, ";
    if (column.contains("categories"))
      out << column.at("categories").size() << " names:" << counts_text(column.at("categories"));
    else if (column.contains("names"))
      out << column.at("names") << " different names: an id or a text?";
    else if (column.contains("more_names_than"))
      out << "more than " << column.at("more_names_than") << " different names: an id or a text?";
    else if (column.contains("mean"))
      out << "numbers " << spread_text(column);
    else
      out << "no value";
    if (column.contains("numbers")) out << " (" << column.at("numbers") << " cells are numbers)";
    out << '\n';
    for (const char* const key : {"error", "warning"})
      if (column.contains(key)) out << "  " << key << ": " << printable(column.at(key).text()) << '\n';
  }
  const int64_t more = j.at("width").get<int64_t>() - number;
  if (more > 0) out << "... " << more << " more columns\n";
}

}  // namespace bitgrad::data
