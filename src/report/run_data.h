// The contents of a run folder, as data for a report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/config/config.h"

namespace bitgrad::html {

// Values over optimizer steps, in file order.
struct Series {
  std::vector<double> x, y;
  bool empty() const { return x.empty(); }
  void add(double step, double value) {
    x.push_back(step);
    y.push_back(value);
  }
};
using SeriesByName = std::map<std::string, Series>;

// The reports of one quantized weight or input (docs/quantization_reports.md).
struct QuantPart {
  std::string layer, part;
  SeriesByName values;
  Json last;  // the last line
};

struct RunData {
  std::string folder, name;          // name: distinguishes runs for the reader
  Json summary, record, evaluation;  // of the .json files; null if missing
  std::string config_text;           // config.yaml; empty if missing
  std::optional<RunConfig> config;   // nullopt: cannot be read (why_no_config)
  std::string why_no_config;
  SeriesByName train;                               // by key of train lines
  std::map<std::string, SeriesByName> evaluations;  // by split, then by metric
  std::vector<QuantPart> quantization;
  std::map<double, int64_t> epochs;  // by step, for steps with evaluations
  bool torn = false;                 // the last line of metrics.jsonl is incomplete
};

// Throws Error(kData) if this is no run folder, or with the number of a line of metrics.jsonl that cannot be read.
RunData read_run(const std::string& folder);

// The split that selects the best model: as in the summary, otherwise valid or another evaluated one; empty if nothing
// was evaluated.
std::string best_split(const RunData& run);
// The metric that selects it.
std::string best_metric(const RunData& run);

}  // namespace bitgrad::html
