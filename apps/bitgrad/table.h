// Text tables for the screen.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/report/report.h"

namespace bitgrad::cli {

// The first line is the header; columns are as wide as their widest cell.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines);
// The same for texts, in lines of at most 80 characters: a long last cell goes on below itself. With `json`, an array
// of objects instead, whose members are named by the header.
void print_texts(std::ostream& out, const std::vector<std::vector<std::string>>& lines, bool json = false);
// A field of a CSV file (RFC 4180): one with a comma, quote or line break is quoted, and its quotes are doubled.
std::string csv_field(const std::string& text);
// Three digits with a decimal unit: "812 B", "58.3 MB", "1.26 GB".
std::string size_text(int64_t bytes);
// Four digits; "-" for a missing value; "inf".
std::string short_number(double x);

// Human-readable memory account.

// Prints "memory at the peak: 10.6 MB" and a line per kind, largest first.
void print_memory(std::ostream& out, const MemoryAccount& peak);

// What several runs came to, as cells of a table and as JSON.

// "metric", "best", "last", "steps", "seconds", "status", "folder".
std::vector<std::string> run_head();
// `no_summary`: the status of a run without summary.json.
std::vector<std::string> run_cells(const RunResult& run, const std::string& no_summary);
Json run_json(const RunResult& run, const std::string& no_summary);
// The folder of the best run; empty if none has a value, or they cannot be compared.
std::string best_folder(const std::vector<RunResult>& runs);

}  // namespace bitgrad::cli
