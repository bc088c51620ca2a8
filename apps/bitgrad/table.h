// Text tables for the screen.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace bitgrad::cli {

// The first line is the header; columns are as wide as their widest cell.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines);
// Three digits with a decimal unit: "812 B", "58.3 MB", "1.26 GB".
std::string size_text(int64_t bytes);
// Four digits; "-" for a missing value; "inf".
std::string short_number(double x);

}  // namespace bitgrad::cli
