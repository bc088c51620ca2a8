// Metrics by name: the lines of metrics.inc, then those that programs and plugins register.
#include "bitgrad/train/metric.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <numbers>

#include "base/registration.h"
#include "bitgrad/base/error.h"

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
bool is_text(const MetricTask& task) { return is_cross_entropy(task) && task.target.bytes_per_target > 0; }
// Outputs of sigmoid_cross_entropy are logits, which do not estimate the targets themselves.
bool is_values(const MetricTask& task) { return !is_classes(task) && task.loss != "sigmoid_cross_entropy"; }

struct MetricRegistry {
  std::deque<Metric> all = {
#define BITGRAD_METRIC(name, goes, fits, expression)                              \
  {#name, goes, fits, [](const MetricTask& task, const StepResult& s) -> double { \
     static_cast<void>(task);                                                     \
     return expression;                                                           \
   }},
#include "train/metrics.inc"
#undef BITGRAD_METRIC
  };
  std::mutex mutex;
};
MetricRegistry& metric_registry() {
  static MetricRegistry all;
  return all;
}

}  // namespace

std::vector<const Metric*> metrics() {
  MetricRegistry& registry = metric_registry();
  const std::lock_guard lock(registry.mutex);
  std::vector<const Metric*> all;
  for (const Metric& m : registry.all) all.push_back(&m);
  return all;
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric* m : metrics()) names.push_back(m->name);
  return names;
}

const Metric* find_metric(const std::string& name) {
  for (const Metric* m : metrics())
    if (m->name == name) return m;
  return nullptr;
}

void register_metric(Metric metric) {
  check_kind_name("register_metric", metric.name);
  require(metric.fits != nullptr, "register_metric", "metric '", metric.name,
          "' does not define which targets it supports");
  require(metric.value != nullptr || metric.measure != nullptr, "register_metric", "metric '", metric.name,
          "' has neither a value nor a measure");
  check_keys("register_metric", concat("metric '", metric.name, '\''), metric.keys);
  const detail::Named named{"a metric", metric.name};
  detail::require_new("register_metric", named, find_metric(metric.name) != nullptr);
  const auto shared = std::make_shared<Metric>(std::move(metric));
  detail::add_new(named, [shared] {
    MetricRegistry& registry = metric_registry();
    const std::lock_guard lock(registry.mutex);
    registry.all.push_back(std::move(*shared));
  });
}

bool is_percentage(const std::string& name) { return name == "accuracy" || name == "top5_accuracy"; }

Measures measures_of(const MetricTask& task, const MetricKeys& keys) {
  Measures measures;
  for (const Metric* m : metrics()) {
    if (!m->measure || !m->fits(task)) continue;
    const auto given = keys.find(m->name);
    const bool needs = std::any_of(m->keys.begin(), m->keys.end(), [](const Key& k) { return k.standard == "!"; });
    if (needs && given == keys.end()) continue;
    measures[m->name] = m->measure(completed(m->name, m->keys, given == keys.end() ? Attributes{} : given->second));
  }
  return measures;
}

MetricValues metric_values(const MetricTask& task, const StepResult& sums) {
  MetricValues values;
  for (const Metric* m : metrics()) {
    if (!m->fits(task)) continue;
    const auto measured = sums.measured.find(m->name);
    if (m->measure && measured == sums.measured.end()) continue;
    values.emplace_back(m->name, m->value ? m->value(task, sums) : measured->second / counted(sums));
  }
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
  for (const auto& [name, sum] : batch.measured) sums.measured[name] += sum;
}

}  // namespace bitgrad
