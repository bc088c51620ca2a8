#include "bitgrad/report/report.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/task/metric.h"

namespace bitgrad {
namespace {

std::string text_in(const Json& summary, std::string_view name) {
  const bool there = summary.is_object() && summary.contains(name) && summary.at(name).is_string();
  return there ? summary.at(name).text() : std::string();
}

std::optional<double> value_of_best(const RunResult& run) {
  if (!run.summary.is_object() || !run.summary.contains("best_value") || !run.summary.at("best_value").is_number())
    return std::nullopt;
  return run.summary.at("best_value").get<double>();
}

}  // namespace

bool is_run_folder(const std::string& folder) { return file_system().exists(folder + "/metrics.jsonl"); }

Json read_summary(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  if (!file_system().exists(path)) return nullptr;
  constexpr int64_t kMostBytes = 1 << 20;
  const std::vector<uint8_t> bytes = read_file(path, kMostBytes);
  try {
    return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "run folder", path, " is damaged: ", printable(e.what()), ". The file can be removed");
  }
}

RunResult result_of(const std::string& folder, Json summary, const RunConfig* config) {
  RunResult run{folder, std::move(summary)};
  const Metric* const metric = find_metric(text_in(run.summary, "metric"));
  const std::string mode = config == nullptr ? "" : config->train.best.mode;
  run.more_is_better = mode.empty() ? metric != nullptr && metric->more_is_better : mode == "max";
  return run;
}

RunResult read_result(const std::string& folder) {
  std::optional<RunConfig> config;
  try {
    config = run_folder_config(folder);
  } catch (const Error&) {  // of another version, or with a plugin that is not loaded
  }
  return result_of(folder, read_summary(folder), config ? &*config : nullptr);
}

std::vector<size_t> best_first(const std::vector<RunResult>& runs, std::string* why_not) {
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const RunResult* first = nullptr;
  for (const RunResult& run : runs) {
    if (!value_of_best(run)) continue;
    if (first == nullptr) first = &run;
    for (const char* name : {"metric", "selected_on"})
      if (const std::string a = text_in(first->summary, name), b = text_in(run.summary, name); a != b) {
        if (why_not != nullptr)
          *why_not = concat("the best models were selected by different values (", name, ": ", printable(a), ", ",
                            printable(b), ")");
        return order;
      }
  }
  const bool up = first != nullptr && first->more_is_better;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const std::optional<double> x = value_of_best(runs[a]), y = value_of_best(runs[b]);
    return x && (!y || (up ? *x > *y : *x < *y));
  });
  return order;
}

}  // namespace bitgrad
