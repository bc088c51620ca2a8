// Sections of a page, in order. Each returns HTML; one without data says why.
#pragma once

#include <string>
#include <vector>

#include "report/run_data.h"

namespace bitgrad::html {

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
