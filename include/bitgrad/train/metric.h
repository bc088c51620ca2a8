// Metrics: numbers that say how good a model is, each a function of sums over batches (docs/numerics.md section 10).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// What a model is measured at.
struct MetricTask {
  TargetForm target = {};
  std::string loss = {};  // the name of its kind, or empty
};

// A metric by its name: accuracy and top5_accuracy in percent, loss, perplexity, bits_per_byte, mean_squared_error.
// A line of metrics.inc, or registered by a program or plugin.
struct Metric {
  std::string name = {};
  bool more_is_better = true;
  std::function<bool(const MetricTask& task)> fits = {};
  std::function<double(const MetricTask& task, const StepResult& sums)> value = {};
  std::string doc = {};
  std::vector<Key> keys = {};  // train.metrics
  // A sum of its own, where those of StepResult do not do: makes what gives that of one batch of an evaluation, of
  // outputs [n, .., o] and their target, both on the CPU. It comes as sums.measured[name]; without `value` the metric
  // is that sum / sums.counted. `keys` has a value for every key that has a default.
  std::function<Measure(const Attributes& keys)> measure = {};
};
// In the order of the list, then of registration. The pointers stay valid until the program ends.
std::vector<const Metric*> metrics();
std::vector<std::string> metric_names();
// Throws Error for a known or bad name, keys that do not read, or without fits, or without both value and measure.
void register_metric(Metric metric);
// nullptr: there is no such metric.
const Metric* find_metric(const std::string& name);

// What a learner measures beside its own sums, for a task: the metrics that fit it and have a measure, by their keys. A
// metric with a required key that is not given is left out.
using MetricKeys = std::map<std::string, Attributes>;
Measures measures_of(const MetricTask& task, const MetricKeys& keys);

using MetricValues = std::vector<std::pair<std::string, double>>;
std::optional<double> value_of(const MetricValues& values, const std::string& metric);
MetricValues metric_values(const MetricTask& task, const StepResult& sums);
// Adds the sums of one batch to those of others.
void add_sums(const StepResult& batch, StepResult& sums);

// What picks the best model of a run.
struct BestRule {
  std::string metric = {};
  bool more_is_better = true;
  bool better(double value, double than) const { return more_is_better ? value > than : value < than; }
};

}  // namespace bitgrad
