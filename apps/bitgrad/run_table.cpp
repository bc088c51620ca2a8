#include "run_table.h"

#include "table.h"

namespace bitgrad::cli {
namespace {

// A member of the summary; null if it is missing.
Json member(const Json& summary, std::string_view name) {
  return summary.is_object() && summary.contains(name) ? summary.at(name) : Json(nullptr);
}

std::string shown(const Json& value) {
  return value.is_number() ? short_number(value.get<double>()) : value.is_string() ? value.text() : "-";
}

}  // namespace

std::vector<std::string> run_head() { return {"metric", "best", "last", "steps", "seconds", "status", "folder"}; }

std::vector<std::string> run_cells(const RunResult& run, const std::string& no_summary) {
  std::vector<std::string> cells;
  for (const char* name : {"metric", "best_value", "last_value", "steps", "seconds"})
    cells.push_back(shown(member(run.summary, name)));
  const Json status = member(run.summary, "status");
  cells.push_back(status.is_string() ? status.text() : no_summary);
  cells.push_back(run.folder);
  return cells;
}

Json run_json(const RunResult& run, const std::string& no_summary) {
  const Json status = member(run.summary, "status");
  Json j{{"folder", run.folder}, {"status", status.is_string() ? status : Json(no_summary)}};
  for (const char* name : {"metric", "selected_on", "best_value", "best_epoch", "best_step", "last_value", "epochs",
                           "steps", "seconds", "metrics"})
    j[name] = member(run.summary, name);
  return j;
}

std::string best_folder(const std::vector<RunResult>& runs) {
  if (runs.empty()) return {};
  std::string why_not;
  const RunResult& first = runs[best_first(runs, &why_not).front()];
  return why_not.empty() && member(first.summary, "best_value").is_number() ? first.folder : std::string();
}

}  // namespace bitgrad::cli
