#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

constexpr int64_t kDrawnClasses = 30, kNumberedClasses = 16;

using Matrix = std::vector<std::vector<int64_t>>;

// evaluation.json may be damaged, so anything malformed is skipped.
Matrix matrix_of(const Json& e) {
  if (!e.contains("confusion") || !e["confusion"].is_array()) return {};
  Matrix m;
  for (const Json& row : e["confusion"].items()) m.push_back(row.get<std::vector<int64_t>>());
  for (const auto& row : m)
    if (row.size() != m.size()) return {};
  return m;
}

std::string class_name(const Json& e, int64_t index) {
  if (e.contains("class_names") && e["class_names"].is_array() && index >= 0 &&
      index < std::ssize(e["class_names"].items()) && e["class_names"][index].is_string())
    return e["class_names"][index].text();
  return concat(index);
}

std::string cut(const std::string& name, size_t letters) {
  size_t end = 0;
  for (size_t n = 0; end < name.size() && n < letters; ++n) {
    ++end;
    while (end < name.size() && (static_cast<uint8_t>(name[end]) & 0xC0U) == 0x80U) ++end;
  }
  return end == name.size() ? name : name.substr(0, end) + "\u2026";
}

int64_t sum_of(const std::vector<int64_t>& row) {
  int64_t sum = 0;
  for (const int64_t x : row) sum += x;
  return sum;
}

// True classes down, predicted ones across; the color shows each cell's share of its row.
std::string drawn(const Json& e, const Matrix& m) {
  const auto n = static_cast<int64_t>(m.size());
  constexpr double kWidth = 400, kLabels = 62, kHead = 34;
  const double cell = (kWidth - kLabels) / static_cast<double>(n), height = kHead + cell * static_cast<double>(n) + 2;
  const size_t letters = n <= kNumberedClasses ? static_cast<size_t>(std::max(cell / 6.5, 2.0)) : 3;
  std::string out = concat("<figure class=\"matrix\"><svg viewBox=\"0 0 ", kWidth, ' ', static_cast<float>(height),
                           "\" role=\"img\" aria-label=\"confusion matrix\"><text class=\"head\" x=\"",
                           kLabels + (kWidth - kLabels) / 2,
                           "\" y=\"11\">predicted</text>"
                           "<text class=\"head row\" x=\"",
                           kLabels - 7, "\" y=\"", kHead - 7, "\">true</text>");
  for (int64_t i = 0; i < n; ++i) {
    const auto& row = m[static_cast<size_t>(i)];
    const double total = std::max(1.0, static_cast<double>(sum_of(row)));
    const double y = kHead + cell * static_cast<double>(i), middle = y + cell / 2 + 3.5;
    const double across = kLabels + cell * (static_cast<double>(i) + 0.5);
    const std::string name = class_name(e, i);
    out += concat("<text class=\"row\" x=\"", kLabels - 7, "\" y=\"", static_cast<float>(middle), "\">",
                  escaped(cut(name, 8)), "</text>");
    if (n <= kNumberedClasses || i % 2 == 0)
      out += concat("<text x=\"", static_cast<float>(across), "\" y=\"", kHead - 7, "\">", escaped(cut(name, letters)),
                    "</text>");
    for (int64_t k = 0; k < n; ++k) {
      const int64_t count = row[static_cast<size_t>(k)];
      if (count == 0) continue;
      const double share = static_cast<double>(count) / total,
                   strength = i == k ? share : std::min(1.0, std::sqrt(share) * 1.2);
      const double x = kLabels + cell * static_cast<double>(k);
      const std::string style = concat("<rect class=\"", i == k ? "hit" : "miss", "\" x=\"", static_cast<float>(x),
                                       "\" y=\"", static_cast<float>(y), "\" width=\"", static_cast<float>(cell),
                                       "\" height=\"", static_cast<float>(cell), "\" fill-opacity=\"",
                                       static_cast<float>(std::round(strength * 100) / 100), "\"><title>");
      out += concat(style, escaped(name), " as ", escaped(class_name(e, k)), ": ", count, "</title></rect>");
      if (n <= kNumberedClasses)
        out += concat("<text", strength > 0.55 ? " class=\"on\"" : "", " x=\"", static_cast<float>(x + cell / 2),
                      "\" y=\"", static_cast<float>(middle), "\">", count, "</text>");
    }
  }
  return out + concat("<rect class=\"box\" x=\"", kLabels, "\" y=\"", kHead, "\" width=\"",
                      static_cast<float>(cell * static_cast<double>(n)), "\" height=\"",
                      static_cast<float>(cell * static_cast<double>(n)), "\"/></svg></figure>\n");
}

std::string class_table(const Json& e, const Matrix& m) {
  Table table{{"class", "samples", "recall", "precision"}, {}, {}, false, 1};
  for (size_t i = 0; i < m.size(); ++i) {
    int64_t predicted = 0;
    for (const auto& row : m) predicted += row[i];
    const int64_t samples = sum_of(m[i]), hits = m[i][i];
    const auto share = [&](int64_t of) {
      return of > 0 ? number_text(std::round(1000.0 * static_cast<double>(hits) / static_cast<double>(of)) / 10) + " %"
                    : std::string("&ndash;");
    };
    table.rows.push_back(
        {escaped(class_name(e, static_cast<int64_t>(i))), count_text(samples), share(samples), share(predicted)});
  }
  return table_html(table) +
         note("Recall: of the samples of a class, those found. Precision: of those taken for it, those that are.");
}

std::string confused_table(const Json& e) {
  if (!e.contains("confused") || !e["confused"].is_array() || e["confused"].empty()) return {};
  Table table{{"true class", "predicted", "samples"}, {}, {}, true, 2};
  for (const Json& p : e["confused"].items()) {
    if (table.rows.size() == 10) break;
    table.rows.push_back({escaped(class_name(e, p.value("class", int64_t{-1}))),
                          escaped(class_name(e, p.value("predicted", int64_t{-1}))),
                          count_text(p.value("count", int64_t{0}))});
  }
  return "<h3>Most confused</h3>\n" + table_html(table);
}

bool is_picture(const std::string& uri) {
  constexpr std::string_view kBegin = "data:image/png;base64,";
  return uri.starts_with(kBegin) &&
         uri.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", kBegin.size()) ==
             std::string::npos;
}

std::string worst_samples(const Json& e) {
  if (!e.contains("worst") || !e["worst"].is_array() || e["worst"].empty()) return {};
  const std::string by = e.value("worst_by", "");
  const std::string what = by == "margin" ? "how far the score of the predicted class is above that of the true one"
                           : by == "cross_entropy" ? "cross-entropy, in nats"
                                                   : "mean squared error";
  std::string out;
  bool pictures = false;
  for (const Json& s : e["worst"].items()) {
    const std::string picture = s.value("picture", "");
    const int64_t label = s.value("class", int64_t{-1});
    out += "<div>";
    if (is_picture(picture)) {
      pictures = true;
      out += concat("<img alt=\"sample ", s.value("sample", int64_t{0}), "\" src=\"", picture, "\">");
    }
    if (label >= 0)
      out += concat("<b>", escaped(class_name(e, label)), "</b> as <b>",
                    escaped(class_name(e, s.value("predicted", int64_t{-1}))), "</b><br>");
    out += concat("<span class=\"note\">sample ", s.value("sample", int64_t{0}), "<br>",
                  number_text(s.value("value", 0.0)), "</span></div>\n");
  }
  const std::string why = pictures ? "" : " The samples are not images of 1 or 3 channels, so none are shown.";
  return "<h3>Worst samples</h3>\n" + note("By " + what + "; class and prediction." + why) + "<div class=\"worst\">\n" +
         out + "</div>\n";
}

// For each metric of each split: the last, lowest and highest value.
std::string metric_table(const RunData& run) {
  Table table{{"split", "metric", "last", "lowest", "highest"}, {}, {}, true, 2};
  for (const auto& [split, values] : run.evaluations)
    for (const auto& [metric, series] : values) {
      if (series.empty()) continue;
      const auto [low, high] = std::minmax_element(series.y.begin(), series.y.end());
      table.rows.push_back({escaped(split), escaped(metric_title(metric)), metric_text(metric, series.y.back()),
                            metric_text(metric, *low), metric_text(metric, *high)});
    }
  return table.rows.empty() ? "" : table_html(table);
}

std::string why_no_examination(const RunData& run) {
  if (run.evaluations.empty()) return "Nothing was evaluated: the configuration has no data.test.";
  if (run.train.contains("tokens_per_s"))
    return "A model of text: perplexity and bits per byte are reported instead of a confusion matrix.";
  if (run.config && !run.config->log.report) return "Not counted: log.report is off.";
  return "No evaluation.json: targets are not one class or values per sample.";
}

}  // namespace

std::string evaluation(const RunData& run) {
  const Json& e = run.evaluation;
  if (!e.is_object()) return section("Evaluation", note(why_no_examination(run)) + metric_table(run));
  try {
    std::string out =
        note(concat("Of the best model: ", count_text(e.value("samples", int64_t{0})), " samples of ",
                    escaped(e.value("split", "test")), " at step ", count_text(e.value("step", int64_t{0})), '.'));
    const Matrix m = matrix_of(e);
    const auto classes = static_cast<int64_t>(m.size());
    if (classes > 0 && classes <= kDrawnClasses)
      out += "<div class=\"two\"><div><h3>Confusion matrix</h3>\n" + drawn(e, m) + "</div><div><h3>Classes</h3>\n" +
             class_table(e, m) + "</div></div>\n";
    else if (e.contains("confused"))
      out += note(concat("A confusion matrix is drawn for at most ", kDrawnClasses,
                         " classes; evaluation.json has it for up to 100."));
    return section("Evaluation", out + confused_table(e) + worst_samples(e) + "<h3>Metrics</h3>\n" + metric_table(run));
  } catch (const JsonError& error) {
    fail_with(ErrorCode::kData, "report", run.folder, "/evaluation.json: ", error.what(), ". The file can be removed");
  }
}

}  // namespace bitgrad::html
