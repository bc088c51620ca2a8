// Makes the plan of a training table from its cells and the keys of format csv, and reads tables by a plan.
#pragma once

#include <string>
#include <vector>

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

}  // namespace bitgrad::data
