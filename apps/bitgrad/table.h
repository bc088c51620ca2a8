// Text tables for the screen.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace bitgrad::cli {

// The first line is the header; columns are as wide as their widest cell.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines);
// The same for texts, in lines of at most 80 characters: a long last cell goes on below itself. With `json`, an array
// of objects instead, whose members are named by the header.
void print_texts(std::ostream& out, const std::vector<std::vector<std::string>>& lines, bool json = false);
// Three digits with a decimal unit: "812 B", "58.3 MB", "1.26 GB".
std::string size_text(int64_t bytes);
// Four digits; "-" for a missing value; "inf".
std::string short_number(double x);

}  // namespace bitgrad::cli
