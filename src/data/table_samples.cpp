// Reads tables by the plan of a training table.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"
#include "data/data_file.h"
#include "data/table_plan.h"

namespace bitgrad {
namespace data {
namespace {

using Use = TableColumn::Use;

std::vector<std::string> names_of(const TablePlan& plan, Use use) {
  std::vector<std::string> out;
  for (const TableColumn& column : plan.columns)
    if (column.use == use) out.push_back(column.name);
  return out;
}

}  // namespace

CsvForm csv_form(const TablePlan& plan) {
  CsvForm form{
      .separator = plan.separator, .decimal = plan.decimal, .head = plan.head, .missing = plan.missing, .fixed = true};
  if (plan.header)
    for (const TableColumn& column : plan.columns) form.known.push_back(column.name);
  return form;
}

PlacedTable::PlacedTable(const TablePlan& p, const CsvTable& t, bool targets) : plan(p), table(t), trains(targets) {
  if (plan.header && table.head.names)
    by_name(targets);
  else
    by_order(targets);
}

void PlacedTable::by_name(bool targets) {
  std::unordered_map<std::string_view, int64_t> there;
  for (int64_t c = 0; c < table.columns(); ++c) there[table.names[static_cast<size_t>(c)]] = c;
  std::vector<std::string> missing, extra;
  for (const TableColumn& column : plan.columns) {
    const auto found = there.find(column.name);
    from.push_back(found == there.end() ? -1 : found->second);
    const bool needed = column.use == Use::kFeature || (targets && column.use == Use::kTarget);
    if (found == there.end() && needed) missing.push_back(column.name);
    if (found == there.end()) continue;
    if (column.use == Use::kTarget && !targets)
      notes.push_back(concat(table.path, ": ", table.column_text(found->second), " is the target and is not read"));
    there.erase(found);
  }
  for (const auto& [name, c] : there) extra.push_back(table.names[static_cast<size_t>(c)]);
  std::sort(extra.begin(), extra.end());
  if (!missing.empty()) {
    const std::string near = nearest_name(missing[0], extra);
    fail_with(ErrorCode::kData, kCsv, table.path, ": got no column ", first_names(missing), ", expected every feature",
              targets ? " and target" : "", " of the training table: ", first_names(names_of(plan, Use::kFeature)), '.',
              near.empty() ? std::string() : concat(" Is it '", printable(near), "'?"));
  }
  if (!extra.empty())
    notes.push_back(concat(table.path, ": ", extra.size(), extra.size() == 1 ? " column" : " columns",
                           " that the training table does not have: not read: ", first_names(extra)));
}

void PlacedTable::by_order(bool targets) {
  const int64_t all = std::ssize(plan.columns);
  const int64_t features = std::ssize(names_of(plan, Use::kFeature));
  const bool whole = table.columns() == all;
  if (!whole && (targets || table.columns() != features))
    fail_with(ErrorCode::kData, kCsv, table.path, ": got ", table.columns(), " columns",
              table.head.names ? "" : concat(" without names (", head_text(table.head), ")"), ", expected ", all,
              " as in the training table",
              targets ? std::string() : concat(", or its ", features, features == 1 ? " feature" : " features"), ": ",
              first_names(names_of(plan, Use::kFeature)), '.');
  int64_t next = 0;
  std::vector<std::string> taken;
  for (const TableColumn& column : plan.columns) {
    const bool there = whole || column.use == Use::kFeature;
    from.push_back(there ? next++ : -1);
    if (there) taken.push_back(column.name);
  }
  if (plan.header || table.head.names || table.head.doubtful)
    notes.push_back(concat(table.path, ": ", head_text(table.head), ". Its columns are taken in the order of the ",
                           whole ? "training table" : "features", ": ", first_names(taken)));
  if (whole && !targets) notes.push_back(concat(table.path, ": the target is there and is not read"));
}

void PlacedTable::check_target(int64_t row, int64_t column) const {
  const int64_t c = from[static_cast<size_t>(column)];
  const std::string_view field = table.at(row, c);
  const TableColumn& to = plan.columns[static_cast<size_t>(column)];
  if (!is_missing(field, plan.missing) || std::binary_search(to.categories.begin(), to.categories.end(), field)) return;
  table.refuse(row, c,
               concat("expected a target: missing only applies to features",
                      plan.values || field.empty() ? std::string()
                                                   : concat(". If '", printable(field),
                                                            "' is the name of a class: names: ", printable(to.name))));
}

float PlacedTable::value_at(int64_t row, int64_t column) const {
  const int64_t c = from[static_cast<size_t>(column)];
  float value = 0;
  const std::string_view field = table.at(row, c);
  if (read_number(field, plan.decimal, value) == Cell::kNumber) return value;
  std::string way;
  if (const NumberLook look = number_look(field, plan.decimal); !is_number(field, plan.decimal) && !look.plain.empty())
    way = look.with.empty() ? concat(", with decimal ", plan.decimal == '.' ? "points" : "commas",
                                     look.grouped ? " and nothing between thousands" : "")
                            : concat(", but it has ", NumberLook{look.with, look.plain}.text(plan.decimal));
  table.refuse(row, c, concat("expected a finite number that fp32 holds", way));
}

int64_t PlacedTable::category_at(int64_t row, int64_t column) const {
  const int64_t c = from[static_cast<size_t>(column)];
  const std::vector<std::string>& all = plan.columns[static_cast<size_t>(column)].categories;
  const std::string_view field = table.at(row, c);
  const auto found = std::lower_bound(all.begin(), all.end(), field);
  constexpr size_t kMany = 50;  // dates, ids: the next table brings others
  const bool many =
      trains && all.size() > kMany && plan.columns[static_cast<size_t>(column)].use == TableColumn::Use::kFeature;
  if (found == all.end() || *found != field)
    table.refuse(row, c,
                 concat("expected one of the ", all.size(), " values in the training file (", first_names(all), ")",
                        many ? concat(". Leave a column of dates or ids out, of both tables: ignore: ",
                                      printable(plan.columns[static_cast<size_t>(column)].name))
                             : std::string()));
  return found - all.begin();
}

int64_t PlacedTable::class_at(int64_t row) const {
  const int64_t target = plan.targets[0];
  if (!plan.columns[static_cast<size_t>(target)].categories.empty()) return category_at(row, target);
  const auto value = static_cast<double>(value_at(row, target));
  if (!(value >= 0 && value < static_cast<double>(plan.classes) && value == std::floor(value)))
    table.refuse(row, from[static_cast<size_t>(target)],
                 concat("expected a class, a whole number 0 .. ", plan.classes - 1,
                        value >= static_cast<double>(plan.classes) && value < static_cast<double>(kMostCsvClasses) &&
                                value == std::floor(value)
                            ? more_classes_text(static_cast<int64_t>(value))
                            : ". target_is: values is for a regression"));
  return static_cast<int64_t>(value);
}

void PlacedTable::write_features(int64_t row, float* x) const {
  for (int64_t i = 0; i < std::ssize(plan.columns); ++i) {
    const TableColumn& column = plan.columns[static_cast<size_t>(i)];
    if (column.use != Use::kFeature) continue;
    const int64_t c = from[static_cast<size_t>(i)];
    const bool missing = is_missing(table.at(row, c), plan.missing);
    if (missing && !column.fill)
      table.refuse(row, c,
                   trains ? "expected a value. To allow missing values, set missing to their replacement (a "
                            "number, mean or median), or ignore the column"
                          : "expected a value: the model has no replacement for missing values in this "
                            "column. Fill it in the file, or train with the key fill");
    if (column.one_hot) {
      std::fill_n(x, column.features(), 0.0f);
      if (!missing) x[category_at(row, i)] = 1.0f;
    } else if (missing) {
      *x = *column.fill;
    } else {
      *x = column.categories.empty() ? value_at(row, i) : static_cast<float>(category_at(row, i));
    }
    x += column.features();
  }
}

}  // namespace data

int64_t TablePlan::features() const {
  int64_t sum = 0;
  for (const TableColumn& column : columns) sum += column.features();
  return sum;
}

Samples read_table_samples(const std::string& path, std::string text, const TablePlan& plan,
                           std::vector<std::string>* notes) {
  const data::CsvTable table =
      data::read_csv_table(path, data::plain_text(path, std::move(text)), data::csv_form(plan));
  const data::PlacedTable placed(plan, table, false);
  const int64_t features = plan.features();
  Samples out{path, StoredAs::kFloat, {features}, table.rows(), {}};
  out.bytes = TrackedBytes(table.rows() * features * 4, MemoryKind::kDataset);
  auto* const x = reinterpret_cast<float*>(out.bytes.data());
  for (int64_t row = 0; row < table.rows(); ++row) placed.write_features(row, x + row * features);
  if (notes != nullptr) notes->insert(notes->end(), placed.notes.begin(), placed.notes.end());
  return out;
}

}  // namespace bitgrad
