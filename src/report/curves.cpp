#include <algorithm>

#include "bitgrad/base/error.h"
#include "report/chart.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

const Series* named(const SeriesByName& all, const std::string& name) {
  const auto at = all.find(name);
  return at == all.end() ? nullptr : &at->second;
}

// Evaluations of each split, with training in the background.
Chart chart_of(const RunData& run, const std::string& metric, bool may_be_log) {
  Chart chart{
      .title = metric_title(metric), .mark = step_of_best(run), .marked = "best model", .may_be_log = may_be_log};
  chart.unit = metric.ends_with("accuracy") ? "%" : "";
  if (const Series* s = named(run.train, metric)) chart.lines.push_back({"train", s, 0, true});
  int color = 0;
  for (const auto& [split, values] : run.evaluations) {
    if (const Series* s = named(values, metric)) chart.lines.push_back({split, s, color, false});
    ++color;
  }
  if (chart.lines.size() > 1) chart.lines.front().color = kColors - 1;
  if (chart.lines.size() == 1) chart.lines.front().faint = false;
  return chart;
}

std::string of_training(const RunData& run, const std::string& key, const std::string& title, const std::string& unit) {
  return chart_html({.title = title, .unit = unit, .lines = {{title, named(run.train, key), 0, false}}});
}

}  // namespace

std::string curves(const RunData& run) {
  std::string charts = chart_html(chart_of(run, "loss", true));
  // For a language model, perplexity and bits per byte say more than the accuracy of the next token.
  std::vector<std::string> metrics{"accuracy", "top5_accuracy", "perplexity", "bits_per_byte", "mean_squared_error"};
  const bool language = run.train.contains("tokens_per_s");
  for (const auto& [split, values] : run.evaluations)
    for (const auto& [metric, series] : values)
      if (metric != "loss" && std::find(metrics.begin(), metrics.end(), metric) == metrics.end())
        metrics.push_back(metric);
  for (const std::string& metric : metrics)
    charts += chart_html(chart_of(run, metric, metric != "accuracy" && metric != "top5_accuracy"));
  charts += of_training(run, "lr", "learning rate", "");
  charts += language ? of_training(run, "tokens_per_s", "speed", "tokens/s")
                     : of_training(run, "samples_per_s", "speed", "samples/s");
  charts += of_training(run, "mfu", "share of log.peak", "%");
  if (charts.empty())
    return section("Curves", note("metrics.jsonl holds no line yet: log.every says when the first one comes."));
  return section("Curves", "<div class=\"charts\">\n" + charts + "</div>\n");
}

}  // namespace bitgrad::html
