// Format csv: one sample per line, with the target in one column (or, for values, in several) and all other columns as
// features. A column whose training values are all numbers is one feature. Any other column holds categories, sorted
// bytewise: one feature each (1 for the sample's value, else 0), or a single feature with the index of the category.
// The interpretation of the columns is derived from the training file, also for data.valid and data.test.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/content.h"
#include "data/csv_fields.h"
#include "data/csv_table.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kCsvData = "data.csv";
constexpr int64_t kMostCsvClasses = 65536;

CsvTable read_table(const DatasetSpec& spec, const std::string& file) {
  const std::unique_ptr<InputFile> opened =
      open_data_file(kCsvData, spec, "file", file, "a file of comma-separated values");
  const std::string path = data_path(spec.root, file);
  ContentReader reader(path, *opened);
  const std::string text = reader.rest();
  const std::string& separator = spec.keys.text("separator");
  return read_csv_table(path, text,
                        separator == "tab"         ? '\t'
                        : separator == "semicolon" ? ';'
                                                   : ',',
                        spec.keys.text("header"));
}

// Interpretation of a column.
struct CsvColumn {
  int64_t index = 0;
  std::vector<std::string> categories = {};  // empty for numbers
  bool one_hot = false;
  int64_t features() const { return one_hot ? std::ssize(categories) : 1; }
};

[[noreturn]] void refuse(const CsvTable& table, int64_t row, int64_t column, const std::string& expected) {
  constexpr size_t kShown = 40;
  fail_with(ErrorCode::kData, kCsvData, table.place(row, column), ": got '",
            printable(table.at(row, column).substr(0, kShown)), "', expected ", expected, '.');
}

float number_at(const CsvTable& table, int64_t row, int64_t column) {
  float value = 0;
  if (!parse_field(table.at(row, column), value) || !std::isfinite(value))
    refuse(table, row, column, "a finite number that fp32 holds");
  return value;
}

int64_t category_at(const CsvTable& table, int64_t row, const CsvColumn& column) {
  const std::vector<std::string>& all = column.categories;
  const std::string& field = table.at(row, column.index);
  const auto found = std::lower_bound(all.begin(), all.end(), field);
  if (found == all.end() || *found != field) {
    constexpr int64_t kShownCategories = 8;
    std::string names;
    for (int64_t i = 0; i < std::min<int64_t>(std::ssize(all), kShownCategories); ++i)
      names += concat(i == 0 ? "" : ", ", printable(all[static_cast<size_t>(i)]));
    refuse(table, row, column.index,
           concat("one of the ", all.size(), " values in the training file (", names,
                  std::ssize(all) > kShownCategories ? " ..." : "", ")"));
  }
  return found - all.begin();
}

class CsvPlan {
 public:
  CsvPlan(const DatasetSpec& spec, const CsvTable& training) : spec_(spec) {
    const std::string& missing = spec.keys.text("missing");
    require(missing == "error" || (parse_field(missing, fill_) && std::isfinite(fill_)), kCsvData, "missing: got '",
            missing, "', expected error, or a number that stands in place of missing values.");
    fills_ = missing != "error";
    values_ = spec.keys.text("target_is") == "values";
    for (const std::string& name : names_in(spec.keys.text("target")))
      targets_.push_back({training.column_of("target", name), {}, false});
    require(values_ || targets_.size() == 1, kCsvData, "target: got ", targets_.size(),
            " columns of classes, expected one; several are for target_is: values.");
    std::vector<int64_t> left_out;
    for (const CsvColumn& c : targets_) left_out.push_back(c.index);
    if (spec.keys.contains("ignore"))
      for (const std::string& name : names_in(spec.keys.text("ignore")))
        left_out.push_back(training.column_of("ignore", name));
    for (int64_t c = 0; c < training.columns(); ++c)
      if (std::find(left_out.begin(), left_out.end(), c) == left_out.end())
        columns_.push_back({c, categories_of(training, c), spec.keys.text("categories") == "one_hot"});
    for (CsvColumn& c : columns_) c.one_hot = c.one_hot && !c.categories.empty();
    for (const CsvColumn& c : columns_) features_ += c.features();
    require(features_ > 0, kCsvData, training.path, ": got no column beside target and ignore, expected features.");
    names_ = training.names;
    find_classes(training);
  }

  std::unique_ptr<Dataset> make(const CsvTable& table) const {
    require(table.names == names_, kCsvData, table.path,
            ": got other columns than those of the training file, expected the "
            "same in the same order.");
    const PixelValues values(spec_);
    values.check(1);
    TrackedBytes x(table.rows() * features_ * 4, MemoryKind::kDataset);
    const int64_t each = values_ ? std::ssize(targets_) : 1;
    TrackedBytes y(table.rows() * each * 4, MemoryKind::kDataset);
    for (int64_t row = 0; row < table.rows(); ++row) {
      write_features(table, row, reinterpret_cast<float*>(x.data()) + row * features_);
      for (int64_t t = 0; t < each; ++t) {
        const CsvColumn& target = targets_[static_cast<size_t>(t)];
        if (is_missing(table.at(row, target.index)))
          refuse(table, row, target.index, "a target: missing stands in place of features alone");
        if (values_)
          reinterpret_cast<float*>(y.data())[row * each + t] = number_at(table, row, target.index);
        else
          reinterpret_cast<int32_t*>(y.data())[row] = static_cast<int32_t>(class_at(table, row));
      }
    }
    apply_values(values, 1, x);
    ImageDataset::Targets targets{std::move(y),
                                  values_ ? StoredAs::kFloat : StoredAs::kInt32,
                                  {values_ ? Shape{each} : Shape{}, values_ ? 0 : classes_}};
    targets.class_names = class_names();
    auto data = std::make_unique<ImageDataset>(table.path, std::vector<int64_t>{features_}, values, std::move(x),
                                               StoredAs::kFloat, std::move(targets));
    data->name_features(feature_names());
    return data;
  }

 private:
  static std::vector<std::string> names_in(const std::string& list) {
    std::vector<std::string> out;
    for_each_field(list, ',', [&](int64_t, std::string_view field) { out.emplace_back(field); });
    return out;
  }
  // For numeric classes: the largest class + 1, unless configured.
  void find_classes(const CsvTable& training) {
    if (values_) {
      require(spec_.classes == 0, kCsvData, "classes: got ", spec_.classes, " with target_is: values.");
      return;
    }
    CsvColumn& target = targets_[0];
    target.categories = categories_of(training, target.index);
    if (!std::all_of(target.categories.begin(), target.categories.end(), is_plain_text))
      for (int64_t row = 0; row < training.rows(); ++row)
        if (!is_plain_text(training.at(row, target.index)))
          refuse(training, row, target.index, "a class name in UTF-8 without control characters, which a run can keep");
    classes_ = spec_.classes > 0 ? spec_.classes : kMostCsvClasses;
    int64_t found = std::ssize(target.categories);
    if (target.categories.empty())
      for (int64_t row = 0; row < training.rows(); ++row)
        if (!is_missing(training.at(row, target.index))) found = std::max(found, class_at(training, row) + 1);
    require(found <= classes_, kCsvData, "classes: got ", spec_.classes, ", column ",
            training.names[static_cast<size_t>(target.index)], " has ", found, '.');
    if (spec_.classes == 0) classes_ = std::max<int64_t>(found, 1);
  }
  // For classes: the categories, if every class has one (`classes` may leave room for more). For values: the column
  // names, unless they are just numbers.
  std::vector<std::string> class_names() const {
    if (!values_)
      return std::ssize(targets_[0].categories) == classes_ ? targets_[0].categories : std::vector<std::string>{};
    std::vector<std::string> columns;
    for (const CsvColumn& target : targets_) {
      columns.push_back(names_[static_cast<size_t>(target.index)]);
      if (columns.back() == std::to_string(target.index + 1)) return {};
    }
    return columns;
  }
  // Empty without a header.
  std::vector<std::string> feature_names() const {
    std::vector<std::string> out;
    for (const CsvColumn& column : columns_) {
      const std::string& name = names_[static_cast<size_t>(column.index)];
      if (name == std::to_string(column.index + 1)) return {};
      if (!column.one_hot) out.push_back(name);
      for (int64_t i = 0; column.one_hot && i < column.features(); ++i)
        out.push_back(concat(name, '=', column.categories[static_cast<size_t>(i)]));
    }
    return out;
  }
  int64_t class_at(const CsvTable& table, int64_t row) const {
    const CsvColumn& target = targets_[0];
    if (!target.categories.empty()) return category_at(table, row, target);
    const double value = static_cast<double>(number_at(table, row, target.index));
    if (!(value >= 0 && value < static_cast<double>(classes_) && value == std::floor(value)))
      refuse(table, row, target.index,
             concat("a class, a whole number 0 .. ", classes_ - 1, ". target_is: values is for a regression"));
    return static_cast<int64_t>(value);
  }
  void write_features(const CsvTable& table, int64_t row, float* x) const {
    for (const CsvColumn& column : columns_) {
      const bool missing = is_missing(table.at(row, column.index));
      if (missing && !fills_)
        refuse(table, row, column.index,
               "a value. Set missing to a number that stands in its place, or ignore the column");
      if (column.one_hot) {
        std::fill_n(x, column.features(), 0.0f);
        if (!missing) x[category_at(table, row, column)] = 1.0f;
      } else if (missing) {
        *x = fill_;
      } else {
        *x = column.categories.empty() ? number_at(table, row, column.index)
                                       : static_cast<float>(category_at(table, row, column));
      }
      x += column.features();
    }
  }

  const DatasetSpec& spec_;
  std::vector<CsvColumn> columns_, targets_;
  std::vector<std::string> names_;
  bool fills_ = false, values_ = false;
  float fill_ = 0;
  int64_t features_ = 0, classes_ = 0;
};

}  // namespace

std::vector<Key> csv_keys() {
  using Type = Key::Type;
  return {
      {.name = "target",
       .type = Type::kText,
       .standard = "!",
       .doc = "column of the target: its name in the head, or its number from 1; with target_is values also "
              "several, by comma. All other columns are features"},
      {.name = "target_is",
       .type = Type::kChoice,
       .standard = "classes",
       .doc = "classes: whole numbers from 0, or names, numbered in the order of their bytes; values: numbers, for "
              "a regression",
       .choices = {"classes", "values"}},
      {.name = "ignore", .type = Type::kText, .doc = "columns that are no features, as target, by comma"},
      {.name = "categories",
       .type = Type::kChoice,
       .standard = "one_hot",
       .doc = "features of a column of names. one_hot: one per name in the training file, 1 or 0; codes: the "
              "number of the name, in the order of their bytes",
       .choices = {"one_hot", "codes"}},
      {.name = "missing",
       .type = Type::kText,
       .standard = "error",
       .doc = "missing features (empty, NA, N/A, NaN, null, ?): error, or the number that stands in their place; of "
              "one_hot all are 0"},
      {.name = "header",
       .type = Type::kChoice,
       .standard = "auto",
       .doc = "whether the first line holds the names of the columns; auto: if it has no number",
       .choices = {"auto", "yes", "no"}},
      {.name = "separator",
       .type = Type::kChoice,
       .standard = "comma",
       .doc = "what stands between fields",
       .choices = {"comma", "semicolon", "tab"}}};
}

std::unique_ptr<Dataset> make_csv_dataset(const DatasetSpec& spec) {
  const CsvTable table = read_table(spec, spec.file);
  const std::string& training = spec.vocabulary_file;
  if (training.empty() || training == spec.file) return CsvPlan(spec, table).make(table);
  return CsvPlan(spec, read_table(spec, training)).make(table);
}

}  // namespace bitgrad::data
