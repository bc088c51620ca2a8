// Metrics that follow the outputs of an evaluation (MetricFollower): F1, recall, balanced accuracy, area under the ROC
// curve, absolute error, R2. docs/numerics.md section 10.
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/task/metric.h"

namespace bitgrad::detail {

std::vector<Key> f1_keys();
std::vector<Key> recall_keys();
using Follower = std::unique_ptr<MetricFollower>;
Follower follow_f1(const MetricTask& task, const Attributes& keys);
Follower follow_recall(const MetricTask& task, const Attributes& keys);
Follower follow_balanced_accuracy(const MetricTask& task, const Attributes& keys);
Follower follow_auc(const MetricTask& task, const Attributes& keys);
Follower follow_absolute_error(const MetricTask& task, const Attributes& keys);
Follower follow_r2(const MetricTask& task, const Attributes& keys);

}  // namespace bitgrad::detail
