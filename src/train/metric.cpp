// The metrics by name: one line of metrics.inc each.
#include "bitgrad/train/metric.h"

#include <cmath>
#include <numbers>

namespace bitgrad {
namespace {

constexpr double kLn2 = std::numbers::ln2;
constexpr bool kUp = true, kDown = false;

double counted(const StepResult& s) { return static_cast<double>(s.counted); }
double mean_loss(const StepResult& s) { return s.loss / counted(s); }

bool always(const MetricTask&) { return true; }
bool is_classes(const MetricTask& task) { return task.target.classes > 0; }
bool has_more_than_five(const MetricTask& task) { return task.target.classes > 5; }
bool is_cross_entropy(const MetricTask& task) { return is_classes(task) && task.loss == "softmax_cross_entropy"; }
bool is_text(const MetricTask& task) { return is_cross_entropy(task) && task.target.text_bytes > 0; }
// Outputs of sigmoid_cross_entropy are logits, no estimates of their targets.
bool is_values(const MetricTask& task) { return !is_classes(task) && task.loss != "sigmoid_cross_entropy"; }

}  // namespace

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = {
#define BITGRAD_METRIC(name, goes, fits, expression)                              \
  {#name, goes, fits, [](const MetricTask& task, const StepResult& s) -> double { \
     static_cast<void>(task);                                                     \
     return expression;                                                           \
   }},
#include "train/metrics.inc"
#undef BITGRAD_METRIC
  };
  return all;
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& m : metrics()) names.emplace_back(m.name);
  return names;
}

const Metric* find_metric(const std::string& name) {
  for (const Metric& m : metrics())
    if (m.name == name) return &m;
  return nullptr;
}

MetricValues metric_values(const MetricTask& task, const StepResult& sums) {
  MetricValues values;
  for (const Metric& m : metrics())
    if (m.fits(task)) values.emplace_back(m.name, m.value(task, sums));
  return values;
}

std::optional<double> value_of(const MetricValues& values, const std::string& metric) {
  for (const auto& [name, value] : values)
    if (name == metric) return value;
  return std::nullopt;
}

void add_sums(const StepResult& batch, StepResult& sums) {
  sums.loss += batch.loss;
  sums.correct += batch.correct;
  sums.samples += batch.samples;
  sums.counted += batch.counted;
  sums.among_top5 += batch.among_top5;
  sums.squared_error += batch.squared_error;
}

}  // namespace bitgrad
