#include <algorithm>

#include "bitgrad/base/error.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

std::string tile(const std::string& value, const std::string& what) {
  return concat("<div class=\"tile\"><b>", value, "</b><span>", what, "</span></div>\n");
}

// A numeric member of the summary, or `otherwise`.
double summed(const RunData& run, std::string_view name, double otherwise) {
  if (!run.summary.is_object() || !run.summary.contains(name) || !run.summary[name].is_number()) return otherwise;
  return run.summary[name].get<double>();
}

std::string status_of(const RunData& run) {
  return run.summary.is_object() ? run.summary.value("status", "unknown") : "no summary";
}

std::string badge(const RunData& run) {
  const std::string status = status_of(run);
  const bool styled = status == "finished" || status == "failed";
  return concat("<span class=\"badge", styled ? " " + status : "", "\">", escaped(status), "</span>");
}

// Notes that a best model selected on the set it is measured on looks better than it is.
std::string honesty(const RunData& run) {
  const std::string split = best_split(run);
  const std::string metric = escaped(metric_title(best_metric(run)));
  const double since = summed(run, "form_since", 0);
  const std::string form = since > 0 ? concat(" Only evaluations since step ", whole_text(since),
                                              " were compared, where the model got its last form (phase ",
                                              whole_text(summed(run, "phase", 0)), ").")
                                     : "";
  if (split.empty())
    return note("Nothing was evaluated: the configuration has no data.test. No best model was chosen.");
  if (split == "test")
    return note("The best model was chosen by " + metric +
                " on data.test itself, so its value is optimistic: the same samples chose the model and measured it." +
                form);
  return note("The best model was chosen by " + metric + " on the split &ldquo;" + escaped(split) + "&rdquo;." + form);
}

std::string model_tiles(const RunData& run) {
  if (!run.record.is_object() || !run.record.contains("model")) return {};
  const Json& model = run.record["model"];
  const double parameters = model.value("parameters", 0.0), bytes = model.value("bytes", 0.0);
  const std::string ratio =
      bytes > 0 && parameters > 0 ? concat(", ", number_text(parameters * 4 / bytes), " times smaller than fp32") : "";
  return tile(bytes_text(bytes), "packed model" + ratio) +
         tile(whole_text(parameters),
              "parameters, " + count_text(model.value("macs", int64_t{0})) + " MACs per sample");
}

}  // namespace

std::string metric_title(const std::string& metric) {
  if (metric == "top5_accuracy") return "top-5 accuracy";
  std::string text = metric;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string metric_text(const std::string& metric, double value) {
  return number_text(value) + (metric.ends_with("accuracy") ? " %" : "");
}

double step_of_best(const RunData& run) {
  const double step = summed(run, "best_step", -1);
  if (step > 0) return step;
  return run.evaluation.is_object() ? run.evaluation.value("step", -1.0) : -1;
}

Best best_of(const RunData& run) {
  Best best;
  best.metric = best_metric(run);
  if (!run.summary.is_object() || !run.summary.contains("best_value") || !run.summary["best_value"].is_number())
    return best;
  best.known = true;
  best.value = run.summary["best_value"].get<double>();
  const double step = step_of_best(run);
  best.place = concat("on ", best_split(run), " at epoch ", whole_text(summed(run, "best_epoch", 0)),
                      step > 0 ? concat(" (step ", whole_text(step), ')') : "");
  return best;
}

std::string headline(const RunData& run) {
  const std::string name = run.config ? run.config->run.name : run.name;
  std::string out =
      concat("<h1>", escaped(name), badge(run), "</h1>\n<p class=\"sub\">", escaped(run.folder), "</p>\n");
  if (run.summary.is_object() && run.summary.contains("error"))
    out += "<p class=\"error\">" + escaped(run.summary.value("error", "")) + "</p>\n";
  if (!run.summary.is_object())
    out += note("No summary.json: the run is not finished, or it was killed. What it wrote until then is shown.");
  if (run.torn) out += note("The last line of metrics.jsonl is incomplete and was skipped.");
  out += "<div class=\"tiles\">\n";
  const Best best = best_of(run);
  if (best.known)
    out += tile(metric_text(best.metric, best.value),
                "best " + escaped(metric_title(best.metric)) + ' ' + escaped(best.place));
  if (const double last = summed(run, "last_value", -1); best.known && last >= 0)
    out += tile(metric_text(best.metric, last), "last " + escaped(metric_title(best.metric)));
  if (run.summary.is_object()) {
    const double seconds = summed(run, "seconds", 0);
    out += tile(seconds_text(seconds), concat(whole_text(summed(run, "steps", 0)), " steps, ",
                                              whole_text(summed(run, "epochs", 0)), " epochs"));
  }
  out += model_tiles(run);
  if (run.summary.is_object() && run.summary.contains("memory"))
    out += tile(bytes_text(run.summary["memory"].value("total_peak", 0.0)), "memory at the peak");
  return out + "</div>\n" + honesty(run);
}

}  // namespace bitgrad::html
