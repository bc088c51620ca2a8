// Metrics: numbers that say how good a model is, each a function of sums over batches (docs/numerics.md section 10).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// What a model is measured at.
struct MetricTask {
  TargetForm target = {};
  std::string loss = {};  // of losses.inc, or empty
};

// A metric by its name: accuracy and top5_accuracy in percent, loss, perplexity, bits_per_byte, mean_squared_error.
struct Metric {
  const char* name;
  bool more_is_better;
  bool (*fits)(const MetricTask& task);
  double (*value)(const MetricTask& task, const StepResult& sums);
};
// In their order; those that fit a task.
const std::vector<Metric>& metrics();
std::vector<std::string> metric_names();
// nullptr: there is no such metric.
const Metric* find_metric(const std::string& name);

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
