// What a run folder says of its run: the data of a report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/train/config.h"

namespace bitgrad::html {

// Values over optimizer steps, in the order of the file.
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
  std::string folder, name;          // name: as a reader tells runs apart
  Json summary, record, evaluation;  // of the .json files; null: there is none
  std::string config_text;           // config.yaml; empty: there is none
  std::optional<RunConfig> config;   // none: it cannot be read here (why_no_config)
  std::string why_no_config;
  SeriesByName train;                               // by key of train lines
  std::map<std::string, SeriesByName> evaluations;  // by split, then by metric
  std::vector<QuantPart> quantization;
  std::map<double, int64_t> epochs;  // of steps with evaluations
  bool torn = false;                 // the last line of metrics.jsonl has no end
};

// Throws Error(kData): no run folder, or a line of metrics.jsonl that cannot be read, with its number.
RunData read_run(const std::string& folder);

// The split that picks the best model: valid where a run has it, else test; empty: nothing was evaluated.
std::string best_split(const RunData& run);
// The metric that picks it.
std::string best_metric(const RunData& run);

}  // namespace bitgrad::html
