// report.html: pictures of runs in one page that needs no network (docs/report.md).
#pragma once

#include <string>
#include <vector>

namespace bitgrad {

// The page of one run folder, or of several side by side. Read are metrics.jsonl, summary.json, config.yaml, run.json
// and evaluation.json, all but the first of which may be missing: a section without data says why. Under 1 MB for runs
// of usual size, whatever their length. Throws Error(kData) for what is no run folder, and for a line that cannot be
// read, with its number; a last line without its end is ignored.
std::string html_report(const std::vector<std::string>& folders);

}  // namespace bitgrad
