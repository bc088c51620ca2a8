// report.html: charts of runs in one self-contained page (docs/report.md).
#pragma once

#include <string>
#include <vector>

namespace bitgrad {

// Returns the page for one run folder, or for several side by side. Reads metrics.jsonl, summary.json, config.yaml,
// run.json and evaluation.json; all but the first may be missing, and a section without data says why. Stays below 1 MB
// for runs of usual size, whatever their length. Throws Error(kData) for a folder that is no run folder, and for an
// unreadable line, with its number; an incomplete last line is ignored.
std::string html_report(const std::vector<std::string>& folders);

}  // namespace bitgrad
