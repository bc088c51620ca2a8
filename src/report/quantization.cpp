#include <algorithm>
#include <array>
#include <cmath>

#include "bitgrad/base/error.h"
#include "report/chart.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

constexpr size_t kMostLines = 6, kMostRows = 200, kMostHistograms = 24;
constexpr int kBuckets = 100;

std::string label_of(const QuantPart& q) { return q.part == "weight" ? q.layer : q.layer + ' ' + q.part; }

// A curve for each part that has the key; if there are too many, those with the worst values.
std::string chart_of(const RunData& run, bool weights, const std::string& key, const std::string& title,
                     const std::string& unit, bool low_is_bad) {
  std::vector<const QuantPart*> parts;
  for (const QuantPart& q : run.quantization)
    if (const auto at = q.values.find(key);
        (q.part == "weight") == weights && at != q.values.end() && !at->second.empty())
      parts.push_back(&q);
  const size_t all = parts.size();
  if (all > kMostLines) {
    const auto last = [&](const QuantPart* q) { return q->values.at(key).y.back(); };
    std::vector<const QuantPart*> sorted = parts;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const QuantPart* a, const QuantPart* b) {
      return low_is_bad ? last(a) < last(b) : last(a) > last(b);
    });
    sorted.resize(kMostLines);
    std::erase_if(parts,
                  [&](const QuantPart* q) { return std::find(sorted.begin(), sorted.end(), q) == sorted.end(); });
  }
  Chart chart{.title = title, .unit = unit, .buckets = kBuckets};
  if (all > kMostLines) chart.unit += concat(", the ", kMostLines, low_is_bad ? " lowest of " : " highest of ", all);
  std::array<bool, kColors> used{};
  for (const QuantPart* q : parts) {  // each layer keeps its color in all charts, if it is free
    auto color = static_cast<size_t>(q - run.quantization.data()) % used.size();
    while (used[color]) color = (color + 1) % used.size();
    used[color] = true;
    chart.lines.push_back({label_of(*q), &q->values.at(key), static_cast<int>(color), false});
  }
  return chart_html(chart);
}

// Values of the codes in ascending order; empty if the dtype is not known.
std::vector<std::string> code_names(const std::string& dtype, size_t codes) {
  std::vector<std::string> names;
  if (dtype == "bint1" && codes == 2) return {"-1", "+1"};
  if (dtype == "ternary" && codes == 3) return {"-1", "0", "+1"};
  const bool is_signed = dtype.starts_with("int"), is_unsigned = dtype.starts_with("uint");
  if (!is_signed && !is_unsigned) return names;
  const auto low = is_signed ? -static_cast<int64_t>(codes / 2) : int64_t{0};
  for (size_t i = 0; i < codes; ++i) names.push_back(concat(low + static_cast<int64_t>(i)));
  return names;
}

std::string histogram(const QuantPart& q) {
  const std::vector<double> counts = q.last["histogram"].get<std::vector<double>>();
  if (counts.empty()) return {};
  const double most = std::max(1.0, *std::max_element(counts.begin(), counts.end()));
  double total = 0;
  for (const double c : counts) total += c;
  const std::string dtype = q.last.value("dtype", "");
  const std::vector<std::string> names = code_names(dtype, counts.size());
  constexpr double kWidth = 170, kHeight = 84, kFloor = 68, kTop = 14;
  const double each = kWidth / static_cast<double>(counts.size()), thick = std::min(each * 0.8, 40.0);
  std::string out = concat("<figure><figcaption><b>", escaped(q.layer), "</b> <span class=\"unit\">", escaped(dtype),
                           ' ', escaped(q.last.value("scheme", "")), "</span></figcaption><svg viewBox=\"0 0 ", kWidth,
                           ' ', kHeight, "\" role=\"img\" aria-label=\"codes of ", escaped(q.layer), "\">");
  for (size_t i = 0; i < counts.size(); ++i) {
    const double height = (kFloor - kTop) * counts[i] / most, middle = each * (static_cast<double>(i) + 0.5);
    const std::string name = i < names.size() ? names[i] : concat(i);
    const std::string share = number_text(100 * counts[i] / std::max(total, 1.0)) + " %";
    const double shown = counts[i] > 0 ? std::max(height, 1.0) : 0;
    out += concat("<rect class=\"bar\" x=\"", static_cast<float>(middle - thick / 2), "\" y=\"",
                  static_cast<float>(kFloor - shown), "\" width=\"", static_cast<float>(thick), "\" height=\"",
                  static_cast<float>(shown), "\"><title>", name, ": ", whole_text(counts[i]), " (", share,
                  ")</title></rect>");
    if (counts.size() <= 4)
      out += concat("<text class=\"x\" x=\"", static_cast<float>(middle), "\" y=\"",
                    static_cast<float>(kFloor - shown - 3), "\">", share, "</text>");
    if (counts.size() <= 8 || i % 2 == 0)
      out +=
          concat("<text class=\"x\" x=\"", static_cast<float>(middle), "\" y=\"", kHeight - 4, "\">", name, "</text>");
  }
  return out + concat("<line class=\"mark\" x1=\"0\" x2=\"", kWidth, "\" y1=\"", kFloor, "\" y2=\"", kFloor,
                      "\" style=\"stroke:var(--line)\"/></svg></figure>\n");
}

std::string histograms(const RunData& run) {
  std::string out;
  size_t shown = 0, all = 0;
  for (const QuantPart& q : run.quantization) {
    if (q.part != "weight" || !q.last.contains("histogram")) continue;
    ++all;
    if (shown < kMostHistograms) {
      out += histogram(q);
      ++shown;
    }
  }
  if (all == 0) return note("Code histograms are recorded for weights of at most 16 codes; this run has none.");
  const std::string more = all > shown ? note(concat("The first ", shown, " of ", all, " layers.")) : "";
  return "<div class=\"histograms\">\n" + out + "</div>\n" + more;
}

std::string percent_cell(const Json& line, const char* name) {
  return line.contains(name) && line[name].is_number() ? number_text(100 * line[name].get<double>()) + " %" : "&ndash;";
}

std::string last_table(const RunData& run) {
  Table table{
      {"layer", "precision", "SQNR dB", "saturated", "flips", "entropy", "dead codes"}, {}, {4, 5, 6}, false, 2};
  for (const QuantPart& q : run.quantization) {
    if (table.rows.size() == kMostRows) break;
    const Json& l = q.last;
    const std::string codes = concat(l.value("dead_codes", int64_t{0}), " of ", l.value("codes", int64_t{0}));
    table.rows.push_back({escaped(label_of(q)), escaped(l.value("dtype", "") + ' ' + l.value("scheme", "")),
                          number_or_dash(l, "sqnr_db"), percent_cell(l, "saturated"), percent_cell(l, "flip_rate"),
                          number_or_dash(l, "entropy") + " of " + number_or_dash(l, "entropy_limit"), codes});
  }
  const size_t all = run.quantization.size();
  return table_html(table) + (all > kMostRows ? note(concat("The first ", kMostRows, " of ", all, " rows.")) : "");
}

// Converts rates to percent.
RunData in_percent(const RunData& run) {
  RunData out;
  out.quantization = run.quantization;
  for (QuantPart& q : out.quantization)
    for (const char* key : {"flip_rate", "saturated", "oscillating"})
      if (const auto at = q.values.find(key); at != q.values.end())
        for (double& y : at->second.y) y *= 100;
  return out;
}

}  // namespace

std::string quantization(const RunData& run) {
  if (run.quantization.empty()) {
    const bool off = run.config && !run.config->log.quantization;
    return section("Quantization", note(off ? "Not recorded: log.quantization is off. Set it, for example to 1 epochs."
                                            : "No report yet: no layer was quantized when log.quantization was due."));
  }
  const RunData parts = in_percent(run);
  const std::string rates = "% of codes since the report before";
  const std::string charts = chart_of(parts, true, "flip_rate", "flips of weights", rates, false) +
                             chart_of(parts, true, "oscillating", "oscillating weights", "%", false) +
                             chart_of(parts, true, "saturated", "saturation of weights", "%", false) +
                             chart_of(parts, true, "sqnr_db", "SQNR of weights", "dB", true) +
                             chart_of(parts, true, "entropy", "entropy of weights", "bits", true) +
                             chart_of(parts, false, "saturated", "saturation of inputs", "%", false) +
                             chart_of(parts, false, "sqnr_db", "SQNR of inputs", "dB", true) +
                             chart_of(parts, false, "entropy", "entropy of inputs", "bits", true);
  return section("Quantization", "<div class=\"charts\">\n" + charts +
                                     "</div>\n<h3>Codes of the weights, last report</h3>\n" + histograms(run) +
                                     "<h3>Last report</h3>\n" + last_table(run));
}

}  // namespace bitgrad::html
