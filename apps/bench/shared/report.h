// Reports of the benchmark programs: JSON that names the machine, and the comparison of two of them by each row's ratio
// to a rival of the same run (times of two runs say little on a shared machine).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bitgrad::bench {

using Json = nlohmann::ordered_json;

// {"machine": name, "cpu": "GenuineIntel 6/207", "isa": granted instruction groups, "threads", "rows": []}
Json new_report(int threads);

// Throws Error unless `path` (empty: nothing to write) is a file in a folder that exists. Called before measuring.
void check_writable(const std::string& option, const std::string& path);
void write_report(const std::string& path, const Json& report);

struct CompareRule {
  std::vector<std::string> key;  // fields that make a row the same row
  std::string ratio;             // the field that is compared: higher is better
  double slack = 0.9;            // new / old below it is a loss
  bool all = false;              // a row of the old report that is not in the new one is a loss too
};
// Prints new / old for each row; false when a row lost, or when no row could be compared. `old_report` is a report.
// Rows without the ratio (no rival built in) are left out.
bool compare_reports(const Json& now, const Json& old_report, const CompareRule& rule);
// Reads the file, then as above. Throws Error for a file that is not such a report.
bool compare_with_file(const Json& now, const std::string& path, const CompareRule& rule);

// A file of one report a machine: {"machines": [report ...]}. The guard compares with the report of the same CPU family
// and instruction groups; on a machine that has none it says so and gives true.
bool guard(const Json& now, const std::string& path, CompareRule rule);
// Replaces or adds the report of this machine; keeps only the fields of `rule`.
void record(const Json& now, const std::string& path, const CompareRule& rule);

}  // namespace bitgrad::bench
