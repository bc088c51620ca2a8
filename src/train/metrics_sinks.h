// What takes the lines of metrics.jsonl in other forms: results.csv, event files of TensorBoard.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/train/metrics_log.h"

namespace bitgrad::detail {

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void line(const Json& object) = 0;
};

// Of a run that goes on after `keep_steps`, whose metrics.jsonl holds `kept` now.
std::vector<std::unique_ptr<MetricsSink>> metrics_sinks(const std::string& folder, int64_t keep_steps,
                                                        std::string_view kept, const MetricsOutputs& outputs);

}  // namespace bitgrad::detail
