// Columns of text on the screen.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace bitgrad::cli {

// The first line is the head; columns are as wide as their widest cell.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines);
// Four digits; "-" for none; "inf".
std::string short_number(double x);

}  // namespace bitgrad::cli
