// Reports of the benchmark programs: JSON that names the machine, and the comparison of two reports by each row's ratio
// to a rival of the same run (times of two runs say little on a shared machine).
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"

namespace bitgrad::bench {

// {"machine": name, "cpu": "GenuineIntel 6/207", "isa": granted instruction groups, "threads", "rows": []}
Json new_report(int threads);

// Throws Error unless `path` is empty (nothing to write) or a file in an existing folder. Call it before measuring.
void check_writable(const std::string& option, const std::string& path);
void write_report(const std::string& path, const Json& report);

struct CompareRule {
  std::vector<std::string> key;  // fields that identify a row
  std::string ratio;             // the compared field: higher is better
  double slack = 0.9;            // new / old below this is a loss
};
// Compares with an older report in a file and prints new / old for each row. Returns false if a row lost or no row
// could be compared. Rows that only one report has are no loss. Throws Error for a file that is not such a report.
bool compare_with_file(const Json& now, const std::string& path, const CompareRule& rule);

// The guard's file: {"machines": [{"machine", "cpu", "isa", "ratios": {key: ratio}}]}. Compares with the figures of the
// same CPU family and instruction groups; a recorded row that was not measured now also counts as a loss. On a machine
// without figures, or without the rival, prints a note and returns true.
bool guard(const Json& now, const std::string& path, const CompareRule& rule);
// Adds the figures of this machine, or replaces them.
void record(const Json& now, const std::string& path, const CompareRule& rule);

}  // namespace bitgrad::bench
