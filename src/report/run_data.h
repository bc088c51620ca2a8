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

// Sections of a page, in order. Each returns HTML; one without data says why.

// Status, and tiles of the main numbers.
std::string headline(const RunData& run);
// Loss, metric, learning rate, speed.
std::string curves(const RunData& run);
// Flips, saturation, SQNR by layer; code histograms; a table.
std::string quantization(const RunData& run);
// Confusion matrix, classes, worst samples; perplexity for language models.
std::string evaluation(const RunData& run);
// The table of layers, memory by kind.
std::string layers(const RunData& run);
std::string memory(const RunData& run);
std::string configuration(const RunData& run);
std::string environment(const RunData& run);

// Comparison of several runs: numbers, curves in common charts, differences between configurations.
std::string comparison(const std::vector<RunData>& runs);

// The best value, for headline and comparison.
struct Best {
  bool known = false;
  double value = 0;
  std::string metric = {}, place = {};  // "on test at epoch 3 (step 1800)"
};
Best best_of(const RunData& run);
// "90.18 %" for a metric in percent.
std::string metric_text(const std::string& metric, double value);
// The name for readers: "bits per byte".
std::string metric_title(const std::string& metric);
double step_of_best(const RunData& run);  // -1 if not known

}  // namespace bitgrad::html
