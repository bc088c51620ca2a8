// Evaluation of a learner on a data set. docs/numerics.md section 10.
#pragma once

#include <cstdint>

#include "bitgrad/data/dataset.h"
#include "bitgrad/task/metric.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// Evaluates on the learner's device: mean loss over the elements that count, accuracy in percent (-1: targets are
// values), and every metric that fits the task. Throws Error(kNonFinite) if a loss is not finite.
struct Evaluation {
  double loss = 0, accuracy = -1;
  int64_t samples = 0;
  MetricValues metrics = {};
};
Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch);

}  // namespace bitgrad
