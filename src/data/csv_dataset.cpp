// Format csv: one sample per line, with the target in one column (or, for values, in several) and all other columns as
// features. A column of numbers is one feature. Any other column holds categories, sorted bytewise: one feature each (1
// for the sample's value, else 0), or a single feature with the index of the category. The plan of the columns is made
// from the training file (table_plan.h), also for data.valid and data.test, and stored with the model.
#include <algorithm>
#include <memory>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/image_dataset.h"
#include "data/table_plan.h"

namespace bitgrad::data {
namespace {

CsvTable read_table(const DatasetSpec& spec, const std::string& file, const TablePlan* plan) {
  const std::unique_ptr<InputFile> opened =
      open_data_file(kCsv, spec, "file", file, "a file of comma-separated values");
  const std::string path = printable(data_path(spec.root, file));
  CsvForm form = csv_form(spec.keys);
  if (plan != nullptr) {
    form.missing = plan->missing;
    form.known = csv_form(*plan).known;
  }
  return read_csv_table(path, ContentReader(path, *opened).rest(), form);
}

// The section may name the target of its own table, which must be that of the plan.
void check_target_key(const DatasetSpec& spec, const PlacedTable& placed) {
  const std::vector<std::string> names = comma_list(spec.keys.text("target"));
  bool same = names.size() == placed.plan.targets.size();
  for (size_t i = 0; same && i < names.size(); ++i)
    same = placed.table.column_of("target", names[i]) == placed.from[static_cast<size_t>(placed.plan.targets[i])];
  std::vector<std::string> expected;
  for (const int64_t t : placed.plan.targets) expected.push_back(placed.plan.columns[static_cast<size_t>(t)].name);
  require(same, kCsv, "target: got '", spec.keys.text("target"), "' in ", placed.table.path,
          ", the training table has '", first_names(expected), "'.");
}

// For classes: the categories, if every class has one (`classes` may leave room for more). For values: the column
// names, unless they are just numbers.
std::vector<std::string> class_names(const TablePlan& plan) {
  const auto& of = [&](int64_t t) -> const TableColumn& { return plan.columns[static_cast<size_t>(t)]; };
  if (!plan.values) {
    const std::vector<std::string>& names = of(plan.targets[0]).categories;
    return std::ssize(names) == plan.classes ? names : std::vector<std::string>{};
  }
  std::vector<std::string> columns;
  for (const int64_t t : plan.targets) {
    columns.push_back(of(t).name);
    if (columns.back() == std::to_string(t + 1)) return {};
  }
  return columns;
}

// Empty without a header.
std::unique_ptr<Dataset> make_table(const DatasetSpec& spec, const CsvTable& table,
                                    const std::shared_ptr<const TablePlan>& plan, bool training) {
  const PlacedTable placed(*plan, table, true);
  check_target_key(spec, placed);
  const PixelValues values(spec);
  values.check(1);
  const int64_t features = plan->features(), each = plan->values ? std::ssize(plan->targets) : 1;
  TrackedBytes x(table.rows() * features * 4, MemoryKind::kDataset), y(table.rows() * each * 4, MemoryKind::kDataset);
  for (int64_t row = 0; row < table.rows(); ++row) {
    placed.write_features(row, reinterpret_cast<float*>(x.data()) + row * features);
    for (int64_t t = 0; t < each; ++t) {
      const int64_t target = plan->targets[static_cast<size_t>(t)];
      placed.check_target(row, target);
      if (plan->values)
        reinterpret_cast<float*>(y.data())[row * each + t] = placed.value_at(row, target);
      else
        reinterpret_cast<int32_t*>(y.data())[row] = static_cast<int32_t>(placed.class_at(row));
    }
  }
  apply_values(values, 1, x);
  TargetForm form;
  if (plan->values) form.shape = {each};
  form.classes = plan->classes;
  ImageDataset::Targets targets{std::move(y), plan->values ? StoredAs::kFloat : StoredAs::kInt32, std::move(form)};
  targets.class_names = class_names(*plan);
  auto data = std::make_unique<ImageDataset>(table.path, std::vector<int64_t>{features}, values, std::move(x),
                                             StoredAs::kFloat, std::move(targets));
  data->set_table(plan, plan->header ? feature_names(*plan) : std::vector<std::string>(),
                  training ? plan->warnings : placed.notes);
  return data;
}

}  // namespace

std::vector<Key> csv_keys() {
  using Type = Key::Type;
  return {
      {.name = "target",
       .type = Type::kTexts,
       .standard = "!",
       .doc = "column of the target: header name, or 1-based index; with target_is values also "
              "several. All other columns are features"},
      {.name = "target_is",
       .type = Type::kChoice,
       .standard = "classes",
       .doc = "classes: whole numbers from 0, or names, numbered in the order of their bytes; values: numbers, for "
              "a regression",
       .choices = {"classes", "values"}},
      {.name = "ignore", .type = Type::kTexts, .doc = "columns that are not features, named as in target"},
      {.name = "names",
       .type = Type::kTexts,
       .doc = "columns whose cells are names, though they look like numbers, or in the target like missing values; as "
              "target"},
      {.name = "categories",
       .type = Type::kChoice,
       .standard = "one_hot",
       .doc = "features of a column of names. one_hot: one per name in the training file, 1 or 0; codes: the "
              "number of the name, in the order of their bytes",
       .choices = {"one_hot", "codes"}},
      {.name = "missing",
       .type = Type::kTexts,
       .standard = "error",
       .doc = "replacement for missing features: error (missing features are an error), a number, mean or median of "
              "the column; all features of one_hot are 0. Missing are empty cells and the markers of pandas (NA, nan, "
              "None ...), or, beside fill, the markers of this list"},
      {.name = "fill",
       .type = Type::kTexts,
       .doc = "replacement for missing features, as missing, for all columns or for one: mean, age=0"},
      {.name = "decimal",
       .type = Type::kChoice,
       .standard = "point",
       .doc = "the decimal mark of numbers",
       .choices = {"point", "comma"}},
      {.name = "header",
       .type = Type::kChoice,
       .standard = "auto",
       .doc = "whether the first line holds the names of the columns; auto: if it has no "
              "number, if it counts up 0, 1, 2 ..., if a name is above numbers, if it has a column that target, "
              "ignore or names give, or if it has new names beside whole numbers above fractions",
       .choices = {"auto", "yes", "no"}},
      {.name = "separator",
       .type = Type::kChoice,
       .standard = "comma",
       .doc = "field separator; blank: any number of blanks or tabs",
       .choices = {"comma", "semicolon", "tab", "pipe", "blank"}}};
}

std::unique_ptr<Dataset> make_csv_dataset(const DatasetSpec& spec) {
  const std::string& training = spec.vocabulary_file;
  const bool own = training.empty() || training == spec.file;
  std::shared_ptr<const TablePlan> plan = spec.table;
  if (plan == nullptr && !own)
    plan = std::make_shared<TablePlan>(make_table_plan(read_table(spec, training, nullptr), spec.keys, spec.classes));
  const CsvTable table = read_table(spec, spec.file, plan.get());
  const bool makes = plan == nullptr;
  if (makes) plan = std::make_shared<TablePlan>(make_table_plan(table, spec.keys, spec.classes));
  return make_table(spec, table, plan, makes);
}

}  // namespace bitgrad::data
