// Metrics by name: the lines of metrics.inc, then those that programs and plugins register.
#include "bitgrad/task/metric.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "task/followed_metrics.h"

namespace bitgrad {
namespace {

using namespace detail;  // NOLINT: the followers of metrics.inc

constexpr double kLn2 = std::numbers::ln2;
constexpr bool kUp = true, kDown = false;

double counted(const StepResult& s) { return static_cast<double>(s.counted); }
double mean_cross_entropy(const StepResult& s) { return s.cross_entropy.value_or(s.loss) / counted(s); }
double mean_loss(const StepResult& s) { return s.loss / (s.weight > 0 ? s.weight : counted(s)); }

bool always(const MetricTask&) { return true; }
bool is_classes(const MetricTask& task) { return task.target.classes > 0; }
bool has_more_than_five(const MetricTask& task) { return task.target.classes > 5; }
bool is_cross_entropy(const MetricTask& task) { return is_classes(task) && task.loss == "softmax_cross_entropy"; }
// The classes are the ids of the samples: what a language model says of the next one.
bool is_next_id(const MetricTask& task) {
  return is_cross_entropy(task) && task.vocabulary > 0 && task.target.classes >= task.vocabulary;
}
bool is_text(const MetricTask& task) { return is_cross_entropy(task) && task.target.bytes_per_target > 0; }
// Outputs of cross-entropies are logits, which do not estimate the targets themselves.
bool is_values(const MetricTask& task) {
  return !is_classes(task) && task.loss != "sigmoid_cross_entropy" && task.loss != "softmax_cross_entropy";
}

// Labels of 0 and 1, or classes.
bool is_labels(const MetricTask& task) { return !is_classes(task) && task.loss == "sigmoid_cross_entropy"; }
bool has_decisions(const MetricTask& task) { return is_classes(task) || is_labels(task); }
bool has_two_classes(const MetricTask& task) { return task.target.classes == 2 || is_labels(task); }

KindList<Metric>& metric_registry() {
  static KindList<Metric> all({
#define BITGRAD_METRIC(name, goes, fits, expression)                              \
  {#name, goes, fits, [](const MetricTask& task, const StepResult& s) -> double { \
     static_cast<void>(task);                                                     \
     return expression;                                                           \
   }},
#define BITGRAD_FOLLOWED_METRIC(called, goes, suits, own, make, about) \
  {.name = #called, .more_is_better = goes, .fits = suits, .doc = about, .keys = own, .follow = make},
#include "task/metrics.inc"
#undef BITGRAD_FOLLOWED_METRIC
#undef BITGRAD_METRIC
  });
  return all;
}

}  // namespace

std::vector<const Metric*> metrics() { return metric_registry().all(); }
std::vector<std::string> metric_names() { return metric_registry().names(); }
const Metric* find_metric(const std::string& name) { return metric_registry().find(name); }

void register_metric(Metric metric) {
  check_kind_name("register_metric", metric.name);
  require(metric.fits != nullptr, "register_metric", "metric '", metric.name,
          "' does not define which targets it supports");
  require(metric.value != nullptr || metric.measure != nullptr || metric.follow != nullptr, "register_metric",
          "metric '", metric.name, "' has neither a value nor a measure");
  check_keys("register_metric", concat("metric '", metric.name, '\''), metric.keys);
  metric_registry().add("register_metric", "a metric", std::move(metric));
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

Followers followers_of(const MetricTask& task, const MetricKeys& keys) {
  Followers followers;
  for (const auto& [name, given] : keys) {
    const Metric* const m = find_metric(name);
    if (m != nullptr && m->follow && m->fits(task)) followers[name] = m->follow(task, completed(name, m->keys, given));
  }
  return followers;
}

namespace {

// A value that is not defined is NaN, and a warning says why.
double followed_value(const std::string& name, const MetricFollower& follower) {
  std::string why;
  const double value = follower.value(why);
  if (!why.empty()) log(LogLevel::kWarning, concat("metric ", name, ": ", why));
  return value;
}

}  // namespace

MetricValues metric_values(const MetricTask& task, const StepResult& sums, const Followers& followers) {
  MetricValues values;
  for (const Metric* m : metrics()) {
    if (!m->fits(task)) continue;
    if (const auto followed = followers.find(m->name); followed != followers.end())
      values.emplace_back(m->name, followed_value(m->name, *followed->second));
    if (m->follow) continue;
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
  sums.weight += batch.weight;
  sums.among_top5 += batch.among_top5;
  sums.squared_error += batch.squared_error;
  if (batch.cross_entropy) sums.cross_entropy = sums.cross_entropy.value_or(0) + *batch.cross_entropy;
  for (const auto& [name, sum] : batch.measured) sums.measured[name] += sum;
}

}  // namespace bitgrad
