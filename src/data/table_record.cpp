// The plan of a table's columns as JSON, in the files of models.

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/table.h"
#include "data/table_plan.h"

namespace bitgrad {

namespace {

constexpr const char* kTableKey = "bitgrad.table";
using Use = TableColumn::Use;

constexpr std::string_view kUses[] = {"feature", "target", "ignored"};

Json column_json(const TableColumn& column) {
  Json j{{"name", column.name}};
  if (column.use != Use::kFeature) j["use"] = std::string(kUses[static_cast<size_t>(column.use)]);
  if (!column.categories.empty()) j["categories"] = column.categories;
  if (column.one_hot) j["one_hot"] = true;
  if (column.fill) j["fill"] = *column.fill;
  return j;
}

TableColumn read_column(const Json& j) {
  TableColumn column;
  column.name = j.at("name").text();
  const std::string use = j.value("use", "feature");
  const auto* const found = std::find(std::begin(kUses), std::end(kUses), use);
  require(found != std::end(kUses), kTableKey, "use: got '", use, "', expected feature, target or ignored");
  column.use = static_cast<Use>(found - std::begin(kUses));
  if (j.contains("categories")) column.categories = j.at("categories").get<std::vector<std::string>>();
  require(std::is_sorted(column.categories.begin(), column.categories.end()), kTableKey, "categories are not in order");
  column.one_hot = j.value("one_hot", false);
  require(!column.one_hot || !column.categories.empty(), kTableKey, "one_hot without categories");
  if (j.contains("fill")) column.fill = j.at("fill").get<float>();
  require(!column.fill || std::isfinite(*column.fill), kTableKey, "fill is not finite");
  return column;
}

char mark_of(const Json& j, std::string_view name, std::string_view allowed) {
  const std::string& text = j.at(name).text();
  require(text.size() == 1 && allowed.find(text[0]) != std::string_view::npos, kTableKey, name, ": got '", text, '\'');
  return text[0];
}

}  // namespace

Json table_record(const TablePlan& plan) {
  Json columns = Json::array();
  for (const TableColumn& column : plan.columns) columns.push_back(column_json(column));
  Json out{{"header", plan.header},
           {"separator", std::string(1, plan.separator)},
           {"decimal", std::string(1, plan.decimal)},
           {"missing", plan.missing},
           {"target_is", plan.values ? "values" : "classes"},
           {"classes", plan.classes},
           {"targets", plan.targets},
           {"columns", columns}};
  if (plan.head != "auto") out["head"] = plan.head;
  return out;
}

TablePlan load_table(const Json& j) {
  TablePlan plan;
  plan.header = j.at("header").get<bool>();
  plan.head = j.value("head", "auto");
  require(plan.head == "auto" || plan.head == (plan.header ? "yes" : "no"), kTableKey, "head: got '", plan.head, '\'');
  plan.separator = mark_of(j, "separator", ",;\t| ");
  plan.decimal = mark_of(j, "decimal", ".,");
  plan.missing = j.at("missing").get<std::vector<std::string>>();
  plan.values = j.at("target_is").text() == "values";
  plan.classes = j.at("classes").get<int64_t>();
  require(plan.values ? plan.classes == 0 : plan.classes >= 1 && plan.classes <= data::kMostCsvClasses, kTableKey,
          "classes: got ", plan.classes);
  for (const Json& column : j.at("columns")) plan.columns.push_back(read_column(column));
  for (const Json& target : j.at("targets")) {
    plan.targets.push_back(target.get<int64_t>());
    require(plan.targets.back() >= 0 && plan.targets.back() < std::ssize(plan.columns) &&
                plan.columns[static_cast<size_t>(plan.targets.back())].use == Use::kTarget,
            kTableKey, "targets: column ", plan.targets.back(), " is none");
  }
  require(!plan.targets.empty() && (plan.values || plan.targets.size() == 1), kTableKey, "targets: got ",
          plan.targets.size());
  return plan;
}

// The plan of arrays whose columns the calling program names.

namespace {

constexpr std::string_view kColumns = "columns";

}  // namespace

TablePlan named_table(const std::vector<std::string>& features, std::vector<std::string> targets, int64_t target_values,
                      int64_t classes) {
  require(!features.empty() && std::ssize(features) <= data::kMostCsvColumns, kColumns, "got ", features.size(),
          " features, expected 1 to ", data::kMostCsvColumns);
  const int64_t wanted = classes > 0 ? 1 : target_values;
  std::unordered_set<std::string_view> names(features.begin(), features.end());
  if (targets.empty())
    for (int64_t i = 0; i < wanted; ++i) {
      std::string name = wanted == 1 ? "target" : concat("target ", i + 1);
      while (names.count(name) > 0) name += '_';
      targets.push_back(std::move(name));
    }
  require(std::ssize(targets) == wanted, kColumns, "got ", targets.size(), " names of targets, expected ", wanted);
  TablePlan plan;
  plan.header = true;
  plan.missing = data::default_missing_words();
  plan.values = classes == 0;
  plan.classes = classes;
  names.clear();
  const auto add = [&](const std::string& name, TableColumn::Use use) {
    require(!name.empty() && printable(name) == name, kColumns, "got '", printable(name),
            "', expected a name in UTF-8 without control characters");
    require(names.insert(name).second, kColumns, "got '", name, "' twice, expected names that differ");
    plan.columns.push_back({.name = name, .use = use});
  };
  for (const std::string& name : features) add(name, TableColumn::Use::kFeature);
  for (const std::string& name : targets) {
    plan.targets.push_back(std::ssize(plan.columns));
    add(name, TableColumn::Use::kTarget);
  }
  return plan;
}

}  // namespace bitgrad
