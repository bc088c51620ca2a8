// What the columns of a training table are: numbers, names, targets, or nothing. A column whose cells are numbers for
// the most part holds numbers, and any other cell in it is an error.
#include "data/table_plan.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/csv_table.h"
#include "data/data_file.h"

namespace bitgrad::data {
namespace {

std::vector<std::string> list_of(const Attributes& keys, std::string_view key) {
  return keys.contains(key) ? comma_list(keys.text(key)) : std::vector<std::string>{};
}

class PlanMaker {
 public:
  PlanMaker(const CsvTable& table, const Attributes& keys, int64_t classes)
      : table_(table), keys_(keys), fill_(table, keys), form_(csv_form(keys)) {
    plan_.separator = form_.separator;
    plan_.decimal = form_.decimal;
    plan_.missing = form_.missing;
    plan_.header = table.head.names;
    plan_.head = form_.head;
    plan_.values = keys.text("target_is") == "values";
    plan_.classes = classes;
  }
  TablePlan make() {
    plan_.about.push_back(head_text(table_.head));
    if (table_.head.doubtful)
      plan_.warnings.push_back(concat(table_.path, ": ", head_text(table_.head),
                                      ". If that is wrong, set header: ", table_.head.names ? "no" : "yes"));
    name_uses();
    for (int64_t c = 0; c < table_.columns(); ++c) read_column(c);
    require(plan_.features() > 0, kCsv, table_.path, ": got no column beside target and ignore, expected features.");
    find_classes();
    merge_about();
    return std::move(plan_);
  }

 private:
  TableColumn& column(int64_t c) { return plan_.columns[static_cast<size_t>(c)]; }

  void name_uses() {
    for (const std::string& name : table_.names) plan_.columns.emplace_back().name = name;
    for (const std::string& name : list_of(keys_, "ignore"))
      column(table_.column_of("ignore", name)).use = TableColumn::Use::kIgnored;
    for (const std::string& name : comma_list(keys_.text("target"))) {
      plan_.targets.push_back(table_.column_of("target", name));
      column(plan_.targets.back()).use = TableColumn::Use::kTarget;
    }
    require(plan_.values || plan_.targets.size() == 1, kCsv, "target: got ", plan_.targets.size(),
            " columns of classes, expected one; several are for target_is: values.");
    for (const std::string& name : list_of(keys_, "names")) named_.insert(table_.column_of("names", name));
  }

  void read_column(int64_t c) {
    TableColumn& out = column(c);
    if (out.use == TableColumn::Use::kIgnored) return say(c, "ignored");
    CsvForm form = form_;
    if (out.use == TableColumn::Use::kTarget && named_.count(c) > 0 && form.missing == default_missing_words())
      form.missing.clear();  // they may be names of classes
    const ColumnCells cells = column_cells(table_, c, form);
    const bool target = out.use == TableColumn::Use::kTarget;
    if (target && plan_.values) {
      check_merged(c);
      return say(c, "target, a value");
    }
    const bool names = named_.count(c) > 0 || holds_names(table_, c, cells, form_);
    const std::string missing = cells.missing == 0 ? std::string() : concat(", ", cells.missing, " missing");
    if (target) {
      if (names) out.categories = categories_of(table_, c, form, kMostCsvClasses);
      check_class_names(c);
      return say(c, concat("target, classes by ", names ? "name" : "number"));
    }
    if (!names) {
      out.fill = fill_.of_numbers(c, form_);
      check_merged(c);
      const std::string filled = out.fill && cells.missing > 0 ? concat(" (become ", *out.fill, ')') : std::string();
      return say(c, concat("numbers", cells.numbers == 0 ? " (no cell has one)" : "", missing, filled));
    }
    out.one_hot = keys_.text("categories") == "one_hot";
    out.categories = categories_of(table_, c, form_, out.one_hot ? kMostOneHot : kMostCodes);
    out.fill = fill_.of_names(c, out.one_hot);
    const int64_t count = std::ssize(out.categories);
    const std::string why = named_.count(c) > 0 ? std::string("set by names")
                            : cells.numbers == 0
                                ? std::string("no cell is a number")
                                : concat("only ", cells.numbers, " of ", table_.rows(), " cells are numbers");
    say(c, concat(count, " names, ", out.one_hot ? "a feature each" : "one feature, their number", " (", why, ')',
                  missing, ": ", first_names(out.categories)));
    constexpr int64_t kFew = 20;
    if (count > kFew && count * 2 > table_.rows() - cells.missing)
      plan_.warnings.push_back(concat(table_.path, ": ", table_.column_text(c), ": ", count, " different names in ",
                                      table_.rows(),
                                      " rows: an id or a text, of which little can be learned? ignore leaves it out"));
  }

  void check_merged(int64_t c) {
    const std::string& name = table_.names[static_cast<size_t>(c)];
    const bool unnamed = c == 0 && name == "1", saved = name.starts_with("Unnamed: ");  // read and saved again
    if (plan_.header && (unnamed || saved))
      plan_.warnings.push_back(concat(table_.path, ": ", table_.column_text(c),
                                      saved ? " is named as pandas names a column without a name" : " has no name",
                                      ", as the numbers of rows that pandas writes; it is a feature. ignore: ", c + 1,
                                      " leaves it out"));
    for (const std::string& text : {merged_text(table_, c, form_), vanishing_text(table_, c, form_)})
      if (!text.empty()) plan_.warnings.push_back(text);
  }

  // The configuration of a run keeps the names, as texts of YAML.
  void check_class_names(int64_t c) const {
    const std::vector<std::string>& names = plan_.columns[static_cast<size_t>(c)].categories;
    if (std::all_of(names.begin(), names.end(), [](const std::string& name) { return printable(name) == name; }))
      return;
    for (int64_t row = 0; row < table_.rows(); ++row)
      if (const std::string_view cell = table_.at(row, c); printable(cell) != cell)
        table_.refuse(row, c, "expected a class name in UTF-8 without control characters, which a run can keep");
  }

  // For numeric classes: the largest class + 1, unless configured.
  void find_classes() {
    if (plan_.values) {
      require(plan_.classes == 0, kCsv, "classes: got ", plan_.classes, " with target_is: values.");
      return;
    }
    const int64_t given = plan_.classes, target = plan_.targets[0];
    plan_.classes = given > 0 ? given : kMostCsvClasses;
    int64_t found = std::ssize(column(target).categories);
    if (found == 0) {
      const PlacedTable placed(plan_, table_, true);
      std::vector<bool> seen;
      for (int64_t row = 0; row < table_.rows(); ++row) {
        if (is_missing(table_.at(row, target), form_.missing)) continue;
        const int64_t label = placed.class_at(row);
        found = std::max(found, label + 1);
        seen.resize(static_cast<size_t>(found));
        seen[static_cast<size_t>(label)] = true;
      }
      if (const std::string absent = absent_classes_text(seen); !absent.empty() && given == 0)
        plan_.warnings.push_back(concat(table_.path, ": ", table_.column_text(target), ": ", absent));
    }
    require(found <= plan_.classes, kCsv, "classes: got ", given, ", column ",
            printable(table_.names[static_cast<size_t>(target)]), " has ", found, '.');
    if (given == 0) plan_.classes = std::max<int64_t>(found, 1);
    about_[static_cast<size_t>(target)] += concat(", ", plan_.classes, " classes");
    if (!column(target).categories.empty())
      about_[static_cast<size_t>(target)] += concat(": ", first_names(column(target).categories));
  }

  void say(int64_t c, std::string text) {
    about_.resize(static_cast<size_t>(c) + 1);
    about_.back() = std::move(text);
  }
  // A line for each run of columns that are taken alike.
  void merge_about() {
    for (int64_t c = 0; c < table_.columns();) {
      int64_t end = c + 1;
      while (end < table_.columns() && about_[static_cast<size_t>(end)] == about_[static_cast<size_t>(c)]) ++end;
      const std::string last = end > c + 1 ? concat(" to ", table_.column_text(end - 1)) : std::string();
      plan_.about.push_back(concat(table_.column_text(c), last, ": ", about_[static_cast<size_t>(c)]));
      c = end;
    }
  }

  const CsvTable& table_;
  const Attributes& keys_;
  FillRules fill_;
  CsvForm form_;
  std::unordered_set<int64_t> named_;
  std::vector<std::string> about_;
  TablePlan plan_;
};

}  // namespace

CsvForm csv_form(const Attributes& keys) {
  const std::string& separator = keys.text("separator");
  CsvForm form;
  for (const CsvSeparator& known : kCsvSeparators)
    if (separator == known.name) form.separator = known.mark;
  form.decimal = keys.text("decimal") == "comma" ? ',' : '.';
  form.head = keys.text("header");
  for (const std::string_view key : {"target", "ignore", "names"})
    for (const std::string& name : list_of(keys, key))
      if (!name.empty()) form.asked.push_back(name);
  if (keys.contains("fill") && keys.text("missing") != "error") form.missing = comma_list(keys.text("missing"));
  return form;
}

TablePlan make_table_plan(const CsvTable& training, const Attributes& keys, int64_t classes) {
  if (training.columns() > kMostCsvColumns)
    fail_with(ErrorCode::kData, kCsv, training.path, ": got ", training.columns(), " columns, expected at most ",
              kMostCsvColumns, ". Save tables of this width as an array (numpy.save) and read it by format: npy.");
  return PlanMaker(training, keys, classes).make();
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += concat(i == 0 ? "" : ", ", printable(std::string_view(names[i]).substr(0, 40)));
  return names.size() > kShown ? out + " ..." : out;
}

}  // namespace bitgrad::data

namespace bitgrad {

std::vector<std::string> feature_names(const TablePlan& plan) {
  std::vector<std::string> out;
  for (const TableColumn& column : plan.columns) {
    if (column.use != TableColumn::Use::kFeature) continue;
    if (!column.one_hot) out.push_back(column.name);
    for (const std::string& category : column.categories)
      if (column.one_hot) out.push_back(concat(column.name, '=', category));
  }
  return out;
}

}  // namespace bitgrad
