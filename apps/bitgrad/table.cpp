#include "table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"

namespace bitgrad::cli {
namespace {

// A member of the summary; null if it is missing.
Json member(const Json& summary, std::string_view name) {
  return summary.is_object() && summary.contains(name) ? summary.at(name) : Json(nullptr);
}

std::string shown(const Json& value) {
  return value.is_number() ? short_number(value.get<double>()) : value.is_string() ? value.text() : "-";
}

}  // namespace

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

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
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

void print_memory(std::ostream& out, const MemoryAccount& peak) {
  std::vector<std::pair<int64_t, std::string>> kinds;
  for (int i = 0; i < kMemoryKinds; ++i)
    if (const int64_t bytes = peak.bytes[static_cast<size_t>(i)]; bytes > 0)
      kinds.emplace_back(bytes, memory_kind_name(static_cast<MemoryKind>(i)));
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  out << "memory at the peak: " << size_text(peak.total) << '\n';
  for (const auto& [bytes, name] : kinds) {
    const std::string size = size_text(bytes);
    out << "  " << name << std::string(14 - std::min<size_t>(14, name.size()), ' ')
        << std::string(9 - std::min<size_t>(9, size.size()), ' ') << size << '\n';
  }
}

std::vector<std::string> run_head() { return {"metric", "best", "last", "steps", "seconds", "status", "folder"}; }

std::vector<std::string> run_cells(const RunResult& run, const std::string& no_summary) {
  std::vector<std::string> cells;
  for (const char* name : {"metric", "best_value", "last_value", "steps", "seconds"})
    cells.push_back(shown(member(run.summary, name)));
  const Json status = member(run.summary, "status");
  cells.push_back(status.is_string() ? status.text() : no_summary);
  cells.push_back(run.folder);
  return cells;
}

Json run_json(const RunResult& run, const std::string& no_summary) {
  const Json status = member(run.summary, "status");
  Json j{{"folder", run.folder}, {"status", status.is_string() ? status : Json(no_summary)}};
  for (const char* name : {"metric", "selected_on", "best_value", "best_epoch", "best_step", "last_value", "epochs",
                           "steps", "seconds", "metrics"})
    j[name] = member(run.summary, name);
  return j;
}

std::string best_folder(const std::vector<RunResult>& runs) {
  if (runs.empty()) return {};
  std::string why_not;
  const RunResult& first = runs[best_first(runs, &why_not).front()];
  return why_not.empty() && member(first.summary, "best_value").is_number() ? first.folder : std::string();
}

}  // namespace bitgrad::cli
