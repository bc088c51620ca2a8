#include <algorithm>

#include "bitgrad/base/error.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

constexpr size_t kMostLayers = 200;

std::string shape_text(const Json& dims) {
  std::string text;
  for (const Json& d : dims.items()) text += concat(text.empty() ? "" : " × ", d.get<int64_t>());
  return text.empty() ? "&ndash;" : text;
}

std::string count_or_dash(const Json& row, std::string_view name) {
  const int64_t n = row.value(name, int64_t{0});
  return n > 0 ? count_text(n) : "&ndash;";
}

}  // namespace

std::string layers(const RunData& run) {
  if (!run.record.is_object() || !run.record.contains("model"))
    return section("Model", note("No run.json with the table of layers: a run writes it with log.report: true. "
                                 "bitgrad inspect prints the table."));
  const Json& model = run.record["model"];
  Table table{{"layer", "kind", "output", "weight", "input", "parameters", "bytes", "MACs"}, {}, {0, 4, 7}, false, 5};
  for (const Json& row : model["rows"].items()) {
    if (table.rows.size() == kMostLayers) break;
    const std::string weight = row.value("weight", ""), input = row.value("input", "");
    table.rows.push_back({escaped(row.value("layer", "")), escaped(row.value("kind", "")), shape_text(row["output"]),
                          weight.empty() ? "&ndash;" : escaped(weight), input.empty() ? "&ndash;" : escaped(input),
                          count_or_dash(row, "parameters"), count_or_dash(row, "bytes"), count_or_dash(row, "macs")});
  }
  const size_t all = model["rows"].items().size();
  std::string out = table_html(table);
  if (all > kMostLayers) out += note(concat("The first ", kMostLayers, " of ", all, " layers."));
  return section("Model", out + note("MACs: multiplications of one sample's forward pass. Bytes: as in a model file, "
                                     "codes with their scales."));
}

std::string memory(const RunData& run) {
  if (!run.summary.is_object() || !run.summary.contains("memory"))
    return section("Memory", note("summary.json is written at the end of a run and holds the memory at its peak."));
  std::vector<std::pair<double, std::string>> kinds;
  const Json& memory = run.summary["memory"];
  for (const auto& [name, bytes] : memory.members())
    if (name != "total_peak" && bytes.is_number() && bytes.get<double>() > 0)
      kinds.emplace_back(bytes.get<double>(), name);
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out = "<p>" + bytes_text(memory.value("total_peak", 0.0)) +
                    " at the moment when the total was largest.</p>\n<div class=\"bars\">\n";
  for (const auto& [bytes, name] : kinds)
    out += concat("<span>", escaped(name),
                  "</span><div><i style=\"width:", static_cast<float>(100 * bytes / kinds.front().first),
                  "%\"></i></div><span>", bytes_text(bytes), "</span>\n");
  return section("Memory", out + "</div>\n");
}

}  // namespace bitgrad::html
