#include <algorithm>

#include "bitgrad/base/error.h"
#include "report/chart.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

constexpr size_t kMostDifferences = 100;

std::string numbers_of(const std::vector<RunData>& runs) {
  Table table{{"run", "status", "best", "where", "steps", "time", "model", "memory"}, {}, {1, 3, 4, 7}, false, 2};
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunData& run = runs[i];
    const Best best = best_of(run);
    const Json model = run.record.is_object() && run.record.contains("model") ? run.record["model"] : Json::object();
    const Json summary = run.summary.is_object() ? run.summary : Json::object();
    const Json memory = summary.contains("memory") ? summary["memory"] : Json::object();
    const auto or_dash = [](bool known, const std::string& text) { return known ? text : std::string("&ndash;"); };
    table.rows.push_back(
        {concat("<i class=\"dot b", i % kColors, "\"></i><a href=\"#run", i, "\">", escaped(run.name), "</a>"),
         escaped(summary.value("status", "no summary")),
         or_dash(best.known, metric_text(best.metric, best.value) + " <span class=\"note\">" +
                                 escaped(metric_title(best.metric)) + "</span>"),
         or_dash(best.known, escaped(best.place)),
         or_dash(summary.contains("steps"), count_text(summary.value("steps", int64_t{0}))),
         or_dash(summary.contains("seconds"), seconds_text(summary.value("seconds", 0.0))),
         or_dash(model.contains("bytes"), bytes_text(model.value("bytes", 0.0))),
         or_dash(memory.contains("total_peak"), bytes_text(memory.value("total_peak", 0.0)))});
  }
  return section("Runs", table_html(table));
}

// One key of all runs in a single chart: from training, or from the split on which each run selected its best model.
Chart over_one_another(const std::vector<RunData>& runs, const std::string& key, bool training) {
  Chart chart{.title = metric_title(key) + (training ? " (train)" : ""), .unit = key.ends_with("accuracy") ? "%" : ""};
  for (size_t i = 0; i < runs.size(); ++i) {
    const SeriesByName* values = &runs[i].train;
    if (!training) {
      const auto at = runs[i].evaluations.find(best_split(runs[i]));
      if (at == runs[i].evaluations.end()) continue;
      values = &at->second;
    }
    if (const auto at = values->find(key); at != values->end())
      chart.lines.push_back({runs[i].name, &at->second, static_cast<int>(i % kColors), false});
  }
  return chart;
}

std::string curves_of(const std::vector<RunData>& runs) {
  std::string charts;
  for (const char* key : {"loss", "accuracy", "perplexity", "bits_per_byte", "mean_squared_error"}) {
    Chart chart = over_one_another(runs, key, false);
    chart.may_be_log = std::string_view(key) != "accuracy";
    charts += chart_html(chart);
  }
  for (const char* key : {"loss", "lr", "samples_per_s"}) {
    Chart chart = over_one_another(runs, key, true);
    chart.may_be_log = std::string_view(key) == "loss";
    if (std::string_view(key) != "loss") chart.title = std::string_view(key) == "lr" ? "learning rate" : "samples/s";
    charts += chart_html(chart);
  }
  return section("Curves", charts.empty() ? note("metrics.jsonl is empty in all runs.")
                                          : "<div class=\"charts\">\n" + charts + "</div>\n");
}

std::string differences_of(const std::vector<RunData>& runs) {
  const std::string title = "Where the configurations differ";
  for (const RunData& run : runs)
    if (!run.config)
      return section(title, note("Not compared: config.yaml of " + escaped(run.name) + " cannot be read (" +
                                 escaped(run.why_no_config) + ")."));
  std::vector<std::string> keys;
  std::map<std::string, std::map<size_t, std::string>> values;  // of runs that differ from the first one
  std::map<std::string, std::string> first;
  for (size_t i = 1; i < runs.size(); ++i)
    for (const ConfigDifference& d : config_differences(*runs[0].config, *runs[i].config)) {
      if (!first.contains(d.key)) keys.push_back(d.key);
      first[d.key] = d.a.value_or("-");
      values[d.key][i] = d.b.value_or("-");
    }
  if (keys.empty()) return section(title, note("They are equal."));
  Table table{{"key"}, {}, {}, false, runs.size() + 1};
  for (const RunData& run : runs) table.head.push_back(escaped(run.name));
  for (const std::string& key : keys) {
    if (table.rows.size() == kMostDifferences) break;
    std::vector<std::string> row{"<code>" + escaped(key) + "</code>", escaped(first[key])};
    for (size_t i = 1; i < runs.size(); ++i)
      row.push_back(values[key].contains(i) ? escaped(values[key][i])
                                            : "<span class=\"note\">" + escaped(first[key]) + "</span>");
    table.rows.push_back(row);
  }
  const std::string more =
      keys.size() > kMostDifferences ? note(concat("The first ", kMostDifferences, " of ", keys.size(), " keys.")) : "";
  return section(title, table_html(table) + more);
}

}  // namespace

std::string comparison(const std::vector<RunData>& runs) {
  return numbers_of(runs) + curves_of(runs) + differences_of(runs);
}

}  // namespace bitgrad::html
