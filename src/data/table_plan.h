// Makes the plan of a training table from its cells and the keys of format csv, and reads tables by a plan.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/table.h"
#include "data/csv_table.h"

namespace bitgrad::data {

inline constexpr int64_t kMostCsvClasses = 65536;
inline constexpr int64_t kMostCsvColumns = 100000;  // so that a model file can hold their plan
inline constexpr int64_t kMostOneHot = 1000;        // names of a column that become a feature each

// The form of a file by the keys of its section.
CsvForm csv_form(const Attributes& keys);
// The form of a file by the plan of its model.
CsvForm csv_form(const TablePlan& plan);
// `classes`: 0: those of the table. Throws Error(kData) that names line and column, Error(kUsage) for keys.
TablePlan make_table_plan(const CsvTable& training, const Attributes& keys, int64_t classes);

// A table with its columns in the order of a plan.
struct PlacedTable {
  PlacedTable(const TablePlan& plan, const CsvTable& table, bool targets);
  void write_features(int64_t row, float* x) const;
  float value_at(int64_t row, int64_t column) const;  // column: of the plan
  int64_t class_at(int64_t row) const;                // of the first target
  void check_target(int64_t row, int64_t column) const;

  const TablePlan& plan;
  const CsvTable& table;
  const bool trains;               // targets are read; else for predictions
  std::vector<int64_t> from;       // by the plan's columns, those of the table; -1: not there and not needed
  std::vector<std::string> notes;  // what is not used

 private:
  void by_name(bool targets);
  void by_order(bool targets);
  int64_t category_at(int64_t row, int64_t column) const;
};

// "a, b, c ..." of the first eight, printable.
std::string first_names(const std::vector<std::string>& names);

// ---- the cells of one column of a training table: what they are for the most part, their names, what fills gaps

inline constexpr int64_t kMostCodes = 1000000;  // names of a column that become their numbers

struct ColumnCells {
  int64_t missing = 0, numbers = 0, others = 0;
  int64_t looks = 0;        // of `others`, texts that look like numbers (number_look)
  int64_t first_odd = -1;   // row of the first of `others`
  int64_t first_look = -1;  // row of the first of `looks`
};
ColumnCells column_cells(const CsvTable& table, int64_t column, const CsvForm& form);
// Throws Error(kData) for a cell that is no number in a column of numbers, and for numbers that are not written
// plainly.
bool holds_names(const CsvTable& table, int64_t column, const ColumnCells& cells, const CsvForm& form);
// The different names, in the order of bytes. Error(kData) if there are more than `most`.
std::vector<std::string> categories_of(const CsvTable& table, int64_t column, const CsvForm& form, int64_t most);
// A warning on different numbers that are one number in fp32, such as ids above 2^24; empty if there are none.
std::string merged_text(const CsvTable& table, int64_t column, const CsvForm& form);
// A warning on numbers other than 0 that are 0 in fp32; empty if there are none.
std::string vanishing_text(const CsvTable& table, int64_t column, const CsvForm& form);

// What stands in place of missing values, by the keys missing and fill.
class FillRules {
 public:
  FillRules(const CsvTable& table, const Attributes& keys);
  std::optional<float> of_numbers(int64_t column, const CsvForm& form) const;
  std::optional<float> of_names(int64_t column, bool one_hot) const;

 private:
  const std::string& rule_of(int64_t column) const;

  const CsvTable& table_;
  std::string common_ = "error";
  std::map<int64_t, std::string> own_;
};

}  // namespace bitgrad::data
