// What a microbatch or an evaluation of one batch gives: sums, of which metrics are computed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// The sum that a metric computes for one batch from outputs [n, .., o] and target, both on the CPU; and the measures of
// a task, by metric name.
using Measure = std::function<double(const Tensor& outputs, const Tensor& target)>;
using Measures = std::map<std::string, Measure>;
// Observes the outputs and target of a batch.
using OutputHook = std::function<void(const Tensor& outputs, const Tensor& target)>;

struct StepResult {
  double loss = 0;      // summed over the target elements that count, each times its weight
  int64_t correct = 0;  // number of predictions whose largest logit is at the target class
  int64_t samples = 0;
  int64_t counted = 0;   // target elements that count
  double weight = 0;     // their total weight (LossFunction::weight); 0: each weighs 1
  bool stepped = false;  // the optimizer ran: a step boundary, where a checkpoint may be saved
  bool skipped = false;  // this ended a window in which nothing counts: no update; a checkpoint may be saved here too
  // Set by evaluation only.
  int64_t among_top5 = 0;    // targets among the five largest logits, if there are more than five classes
  double squared_error = 0;  // sum, for value targets
  // Sum of the cross-entropy without weights and smoothing; nullopt: it is the loss.
  std::optional<double> cross_entropy = {};
  std::map<std::string, double> measured = {};  // custom sums of metrics (Measures)
};

}  // namespace bitgrad
