// What several runs came to, as cells of a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/report/run_results.h"

namespace bitgrad::cli {

// "metric", "best", "last", "steps", "seconds", "status", "folder".
std::vector<std::string> run_head();
// `no_summary`: the status of a run without summary.json.
std::vector<std::string> run_cells(const RunResult& run, const std::string& no_summary);
Json run_json(const RunResult& run, const std::string& no_summary);
// The folder of the best run; empty if none has a value, or they cannot be compared.
std::string best_folder(const std::vector<RunResult>& runs);

}  // namespace bitgrad::cli
