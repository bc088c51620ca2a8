// Reports of runs, by their folders: the page of charts, and what several runs came to.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/config/config.h"

namespace bitgrad {

// report.html: charts of runs in one self-contained page (docs/report.md).

// Returns the page for one run folder, or for several side by side. Reads metrics.jsonl, summary.json, config.yaml,
// run.json and evaluation.json; all but the first may be missing, and a section without data says why. Stays below 1 MB
// for runs of usual size, whatever their length. Throws Error(kData) for a folder that is no run folder, and for an
// unreadable line, with its number; an incomplete last line is ignored.
std::string html_report(const std::vector<std::string>& folders);

// What runs came to, by their folders: for tables of several.

// Whether the folder holds a run that has begun: a metrics.jsonl.
bool is_run_folder(const std::string& folder);

struct RunResult {
  std::string folder = {};
  Json summary = nullptr;      // summary.json; null: there is none, the run is not over or was killed
  bool more_is_better = true;  // of summary's metric
};
// `config`: that of the run, nullptr if it cannot be read.
RunResult result_of(const std::string& folder, Json summary, const RunConfig* config);
// Throws Error(kData) for a damaged summary.json.
RunResult read_result(const std::string& folder);
Json read_summary(const std::string& folder);

// Indices of the runs, the best first, those without a value last. The order is that given, and `why_not` says why, if
// the runs chose their best models by different metrics or on different data.
std::vector<size_t> best_first(const std::vector<RunResult>& runs, std::string* why_not = nullptr);

}  // namespace bitgrad
