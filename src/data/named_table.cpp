// The plan of arrays whose columns the calling program names.
#include <unordered_set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/table.h"
#include "data/table_plan.h"

namespace bitgrad {
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
