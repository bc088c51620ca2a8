// Copies of metrics.jsonl in other formats: results.csv, TensorBoard event files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/run/metrics_log.h"

namespace bitgrad::detail {

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void line(const Json& object) = 0;
};

// For a run that continues after step `keep_steps`; `kept` is the present content of metrics.jsonl.
std::vector<std::unique_ptr<MetricsSink>> metrics_sinks(const std::string& folder, int64_t keep_steps,
                                                        std::string_view kept, const MetricsOutputs& outputs);

}  // namespace bitgrad::detail
