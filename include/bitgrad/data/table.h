// How a table of text becomes samples: the plan of its columns, made from a training table and stored with the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/data/samples.h"

namespace bitgrad {

struct TableColumn {
  enum class Use : uint8_t { kFeature, kTarget, kIgnored };
  std::string name = {};  // in the header; without one its number, from 1
  Use use = Use::kFeature;
  std::vector<std::string> categories = {};  // names that the column may hold, in the order of bytes; empty: numbers
  bool one_hot = false;                      // a feature for each category; false: the number of the category
  std::optional<float> fill = {};            // stands in place of a missing value; nullopt: those are errors
  int64_t features() const { return use != Use::kFeature ? 0 : one_hot ? static_cast<int64_t>(categories.size()) : 1; }
};

struct TablePlan {
  std::vector<TableColumn> columns = {};  // in the order of the training table
  std::vector<int64_t> targets = {};      // of `columns`, in the order of a target's values
  bool values = false;                    // targets are values; false: classes
  int64_t classes = 0;                    // 0 for values
  bool header = false;                    // the columns have names
  std::string head = "auto";              // whether other files have a header: auto (it is guessed), yes, no
  char separator = ',', decimal = '.';
  std::vector<std::string> missing = {};  // words that stand for a missing value, beside the empty field
  // Of the training table, not stored: what each column was taken for and why, a line each; and doubts.
  std::vector<std::string> about = {}, warnings = {};
  int64_t features() const;
};

// A name for each feature, in their order: the column's, or COLUMN=CATEGORY.
std::vector<std::string> feature_names(const TablePlan& plan);

// The plan of arrays whose columns the program names: numbers as they are. `targets`: empty: "target", or "target 1" to
// "target `target_values`". `classes`: 0: targets are values. Throws Error for names that are empty, twice there, or no
// printable UTF-8, and for a number of targets other than `target_values`.
TablePlan named_table(const std::vector<std::string>& features, std::vector<std::string> targets, int64_t target_values,
                      int64_t classes);

// The record of a plan, for files.
Json table_record(const TablePlan& plan);
// Throws Error for JSON that is no such record.
TablePlan load_table(const Json& record);

// The features of each row of a text, as the plan reads them: by name where the table has a header, in any order, else
// in the order of the features or of the training table. The target may be there and is not read. `notes`: what was not
// used. Throws Error(kData) that names line and column.
Samples read_table_samples(const std::string& path, std::string text, const TablePlan& plan,
                           std::vector<std::string>* notes = nullptr);

}  // namespace bitgrad
