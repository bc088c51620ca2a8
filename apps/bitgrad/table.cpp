#include "table.h"

#include <cmath>

#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"

namespace bitgrad::cli {

void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines) { out << text_table(lines); }

std::string short_number(double x) {
  if (std::isnan(x)) return "-";
  TextWriter out;
  out.precision(4);
  out << x;
  return out.str();
}

}  // namespace bitgrad::cli
