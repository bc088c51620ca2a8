#include "table.h"

#include <cmath>
#include <cstdio>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"

namespace bitgrad::cli {

void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines) { out << text_table(lines); }

void print_texts(std::ostream& out, const std::vector<std::vector<std::string>>& lines, bool json) {
  if (!json) {
    out << wrap_lines(text_table(lines));
    return;
  }
  Json rows = Json::array();
  for (size_t i = 1; i < lines.size(); ++i) {
    Json row = Json::object();
    for (size_t k = 0; k < lines[i].size(); ++k) row[lines[0][k]] = lines[i][k];
    rows.push_back(row);
  }
  out << rows.dump(2) << '\n';
}

std::string size_text(int64_t bytes) {
  if (bytes < 1000) return concat(bytes, " B");
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 999.5 && unit < 5; ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text,
                size < 9.995   ? "%.2f %cB"
                : size < 99.95 ? "%.1f %cB"
                               : "%.0f %cB",
                size, " kMGTP"[unit]);
  return text;
}

std::string short_number(double x) {
  if (std::isnan(x)) return "-";
  TextWriter out;
  out.precision(4);
  out << x;
  return out.str();
}

}  // namespace bitgrad::cli
