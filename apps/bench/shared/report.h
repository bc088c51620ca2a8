// Reports of the benchmark programs: JSON that names the machine, and the comparison of two of them by each row's ratio
// to a rival of the same run (times of two runs say little on a shared machine).
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"

namespace bitgrad::bench {

// {"machine": name, "cpu": "GenuineIntel 6/207", "isa": granted instruction groups, "threads", "rows": []}
Json new_report(int threads);

// Throws Error unless `path` (empty: nothing to write) is a file in a folder that exists. Called before measuring.
void check_writable(const std::string& option, const std::string& path);
void write_report(const std::string& path, const Json& report);

struct CompareRule {
  std::vector<std::string> key;  // fields that make a row the same row
  std::string ratio;             // the field that is compared: higher is better
  double slack = 0.9;            // new / old below it is a loss
};
// Compares with an older report in a file and prints new / old for each row. False when a row lost, or when no row
// could be compared. Rows that only one of them has are no loss. Throws Error for a file that is not such a report.
bool compare_with_file(const Json& now, const std::string& path, const CompareRule& rule);

// The guard's file: {"machines": [{"machine", "cpu", "isa", "ratios": {key: ratio}}]}. Compares with the figures of the
// same CPU family and instruction groups; a recorded row that was not measured now is a loss too. On a machine without
// figures, and without the rival, it says so and gives true.
bool guard(const Json& now, const std::string& path, const CompareRule& rule);
// Replaces or adds the figures of this machine.
void record(const Json& now, const std::string& path, const CompareRule& rule);

}  // namespace bitgrad::bench
