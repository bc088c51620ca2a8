// Metrics of model quality, each computed from sums over batches (docs/numerics.md section 10).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/task/loss.h"

namespace bitgrad {

// What a metric applies to: target form, loss and ids.
struct MetricTask {
  TargetForm target = {};
  std::string loss = {};   // name of the loss kind, or empty
  int64_t vocabulary = 0;  // samples are ids below it; 0: values
};

// Follows the batches of one evaluation, for values that are no function of StepResult's sums.
class MetricFollower {
 public:
  virtual ~MetricFollower() = default;
  // Outputs [n, .., o] and target of one batch, both on the CPU.
  virtual void add(const Tensor& outputs, const Tensor& target) = 0;
  // After the last batch. NaN if the value is not defined for these targets; `why` then says so.
  virtual double value(std::string& why) const = 0;
};

// A named metric, such as accuracy, loss or f1. Listed in metrics.inc, or registered by a program or plugin.
struct Metric {
  std::string name = {};
  bool more_is_better = true;
  std::function<bool(const MetricTask& task)> fits = {};
  std::function<double(const MetricTask& task, const StepResult& sums)> value = {};
  std::string doc = {};
  std::vector<Key> keys = {};  // keys under train.metrics
  // Creates a custom per-batch sum for metrics that StepResult's sums do not cover. The function it returns gets the
  // outputs [n, .., o] and target of one evaluation batch, both on the CPU. The total appears as sums.measured[name];
  // without `value`, the metric is that total / sums.counted. `keys` has a value for every key that has a default.
  std::function<Measure(const Attributes& keys)> measure = {};
  // Instead of `value` and `measure`: creates what follows an evaluation. Only metrics that are asked for, by
  // train.metrics, train.best or train.early_stop (the keys of the metric there), are followed.
  std::function<std::unique_ptr<MetricFollower>(const MetricTask& task, const Attributes& keys)> follow = {};
};
// In list order, followed by registered metrics in order of registration. Pointers stay valid for the lifetime of the
// program.
std::vector<const Metric*> metrics();
std::vector<std::string> metric_names();
// Throws Error if the name is taken or invalid, a key is malformed, `fits` is missing, or both `value` and `measure`
// are.
void register_metric(Metric metric);
// Returns nullptr for an unknown name.
const Metric* find_metric(const std::string& name);
// Whether the values of a metric are percentages: accuracy, top5_accuracy.
bool is_percentage(const std::string& name);

// The measures of all metrics that fit the task and have one, created with the given keys. A metric with a required key
// that is missing is left out.
using MetricKeys = std::map<std::string, Attributes>;
Measures measures_of(const MetricTask& task, const MetricKeys& keys);
// Followers of the metrics that `keys` names and that fit the task, by name.
using Followers = std::map<std::string, std::unique_ptr<MetricFollower>>;
Followers followers_of(const MetricTask& task, const MetricKeys& keys);

using MetricValues = std::vector<std::pair<std::string, double>>;
std::optional<double> value_of(const MetricValues& values, const std::string& metric);
MetricValues metric_values(const MetricTask& task, const StepResult& sums, const Followers& followers = {});
// Adds the sums of one batch to `sums`.
void add_sums(const StepResult& batch, StepResult& sums);

// The criterion that selects the best model of a run.
struct BestRule {
  std::string metric = {};
  bool more_is_better = true;
  bool better(double value, double than) const { return more_is_better ? value > than : value < than; }
};

}  // namespace bitgrad
