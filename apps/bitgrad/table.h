// Columns of text on the screen.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace bitgrad::cli {

// The first line is the head; columns are as wide as their widest cell.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines);
// Three digits and a unit of 1000s: "812 B", "58.3 MB", "1.26 GB".
std::string size_text(int64_t bytes);
// Four digits; "-" for none; "inf".
std::string short_number(double x);

}  // namespace bitgrad::cli
