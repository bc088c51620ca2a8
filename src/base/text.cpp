#include "bitgrad/base/text.h"

#include <algorithm>

namespace bitgrad {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = 2 + static_cast<int>(name.size()) / 3;
  for (const std::string& k : known) {
    const int distance = edit_distance(name, k);
    if (distance < best_distance) {
      best = k;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  std::string out = "unknown " + std::string(what) + " '" + std::string(name) + "'.";
  const std::string near = nearest_name(name, known);
  if (!near.empty()) out += " Did you mean '" + near + "'?";
  out += " Known:";
  for (size_t i = 0; i < known.size(); ++i) out += (i ? ", " : " ") + known[i];
  return out;
}

std::string text_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> width;
  for (const auto& line : lines) {
    width.resize(std::max(width.size(), line.size()), 0);
    for (size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  std::string table;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += line[i] + std::string(width[i] - line[i].size() + 2, ' ');
    table += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
  }
  return table;
}

}  // namespace bitgrad
