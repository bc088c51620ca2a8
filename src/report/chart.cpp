#include "report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bitgrad/base/error.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

// Dimensions of the picture, in units of its viewBox.
constexpr double kWidth = 400, kHeight = 220, kLeft = 44, kRight = 52, kTop = 10, kBottom = 24;
constexpr size_t kMostLabels = 4, kMostDots = 30;

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks = {};
  double step = 1;
  // 0 at low, 1 at high.
  double at(double x) const {
    if (logarithmic) return (std::log10(x) - std::log10(low)) / (std::log10(high) - std::log10(low));
    return (x - low) / (high - low);
  }
};

double nice_step(double range, int wanted) {
  const double raw = range / wanted, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power * 1.0001) return m * power;
  return 10 * power;
}

void set_ticks(Axis& axis, int wanted) {
  axis.step = nice_step(axis.high - axis.low, wanted);
  constexpr size_t kMost = 12;  // terminates if t + 1 equals t in double precision
  for (double t = std::ceil(axis.low / axis.step - 1e-9);
       axis.ticks.size() < kMost && t * axis.step <= axis.high + 1e-9 * axis.step; t += 1)
    axis.ticks.push_back(t * axis.step);
}

// 1, 2 and 5 times powers of ten, or only the powers if these are enough.
void set_log_ticks(Axis& axis) {
  const double decades = std::log10(axis.high / axis.low);
  const int every = decades > 6 ? 2 : 1;
  for (int p = static_cast<int>(std::floor(std::log10(axis.low)));
       p <= static_cast<int>(std::ceil(std::log10(axis.high))); ++p)
    for (const double m : {1.0, 2.0, 5.0}) {
      const double t = m * std::pow(10.0, p);
      const bool shown = m == 1.0 ? p % every == 0 : decades < 2.2;
      if (shown && t >= axis.low * 0.999 && t <= axis.high * 1.001) axis.ticks.push_back(t);
    }
  axis.step = 0;
}

Axis value_axis(const std::vector<Series>& all, bool may_be_log) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Series& s : all)
    for (const double y : s.y) {
      low = std::min(low, y);
      high = std::max(high, y);
    }
  constexpr double kMost = 1e300;  // keeps ranges finite; values beyond are drawn at the edge
  low = std::clamp(low, -kMost, kMost);
  high = std::clamp(high, -kMost, kMost);
  Axis axis;
  if (may_be_log && low > 0 && high > 50 * low) {
    axis = {low / 1.15, high * 1.15, true, {}, 0};
    set_log_ticks(axis);
    return axis;
  }
  if (low == high && low > 0) low = 0;  // a constant: start at 0, with room above
  if (low == 0 && high == 0) high = 1;
  const double range = high - low, room = range > 0 ? 0.07 * range : std::max(0.05 * std::abs(high), 1e-6);
  axis.low = low >= 0 && (low < 0.3 * high || low - room < 0) ? 0 : low - room;
  axis.high = high <= 0 && axis.low < 0 && high + room > 0 ? 0 : high + room;
  if (axis.high <= axis.low) axis.high = axis.low + 1;
  set_ticks(axis, 4);
  return axis;
}

Axis step_axis(const std::vector<Series>& all) {
  Axis axis{0, 0, false, {}, 1};
  for (const Series& s : all)
    if (!s.empty()) axis.high = std::max(axis.high, s.x.back());
  axis.high = std::max(axis.high, 1.0);
  set_ticks(axis, 4);
  return axis;
}

// Formats a coordinate. Far outside the picture the exact place does not matter.
std::string fixed(double x) {
  const auto tenths = std::isnan(x) ? int64_t{0} : static_cast<int64_t>(std::llround(std::clamp(x, -1e6, 1e6) * 10));
  const int64_t a = tenths < 0 ? -tenths : tenths;
  return concat(tenths < 0 ? "-" : "", a / 10, a % 10 == 0 ? "" : concat('.', a % 10));
}

class Picture {
 public:
  Picture(const Chart& chart, std::vector<Series> series)
      : chart_(chart), series_(std::move(series)), x_(step_axis(series_)), y_(value_axis(series_, chart.may_be_log)) {}

  std::string svg() const {
    std::string out = concat("<svg class=\"chart\" viewBox=\"0 0 ", kWidth, ' ', kHeight,
                             "\" role=\"img\" aria-label=\"", escaped(chart_.title), "\">", grid());
    if (chart_.mark >= 0 && chart_.mark <= x_.high) out += mark();
    for (size_t i = 0; i < series_.size(); ++i) out += curve(chart_.lines[i], series_[i]);
    return out + end_labels() + "<line class=\"cursor\" y1=\"" + fixed(kTop) + "\" y2=\"" + fixed(kHeight - kBottom) +
           "\" x1=\"-9\" x2=\"-9\"/></svg>";
  }

 private:
  double px(double x) const { return kLeft + x_.at(x) * (kWidth - kLeft - kRight); }
  double py(double y) const { return kHeight - kBottom - y_.at(y) * (kHeight - kTop - kBottom); }

  std::string grid() const {
    std::string out = "<g class=\"grid\">";
    for (const double t : y_.ticks)
      out += concat("<line x1=\"", kLeft, "\" x2=\"", kWidth - kRight, "\" y1=\"", fixed(py(t)), "\" y2=\"",
                    fixed(py(t)), "\"/><text class=\"y\" x=\"", kLeft - 6, "\" y=\"", fixed(py(t) + 3.5), "\">",
                    tick_text(t, y_.step == 0 ? t : y_.step), "</text>");
    for (const double t : x_.ticks)
      out += concat("<text class=\"x\" x=\"", fixed(px(t)), "\" y=\"", kHeight - 7, "\">", tick_text(t, x_.step),
                    "</text>");
    const std::string floor = fixed(kHeight - kBottom);
    return out + concat("<line class=\"axis\" x1=\"", kLeft, "\" x2=\"", kWidth - kRight, "\" y1=\"", floor, "\" y2=\"",
                        floor, "\"/><text class=\"unit\" x=\"", kWidth - 2, "\" y=\"", kHeight - 7,
                        "\">steps</text></g>");
  }

  std::string mark() const {
    const std::string x = fixed(px(chart_.mark));
    return concat("<g class=\"mark\"><line x1=\"", x, "\" x2=\"", x, "\" y1=\"", kTop, "\" y2=\"", kHeight - kBottom,
                  "\"/><title>", escaped(chart_.marked), "</title></g>");
  }

  std::string curve(const ChartLine& line, const Series& s) const {
    if (s.empty()) return {};
    std::string points, values, dots;
    for (size_t i = 0; i < s.x.size(); ++i) {
      const std::string x = fixed(px(s.x[i])), y = fixed(py(s.y[i]));
      points += concat(i == 0 ? "" : " ", x, ',', y);
      values +=
          concat(i == 0 ? "" : " ", std::abs(s.x[i]) < 1e15 ? concat(static_cast<int64_t>(s.x[i])) : concat(s.x[i]),
                 ',', static_cast<float>(s.y[i]));
      if (s.x.size() <= kMostDots && !line.faint) dots += concat("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"2.2\"/>");
    }
    return concat("<g class=\"c", line.color, line.faint ? " faint" : "", "\" data-l=\"", escaped(line.label),
                  "\" data-v=\"", values, "\"><polyline points=\"", points, "\"/>", dots, "</g>");
  }

  // The last value of each line next to its end, moved apart where labels overlap.
  std::string end_labels() const {
    struct Label {
      double y;
      size_t line;
    };
    std::vector<Label> labels;
    for (size_t i = 0; i < series_.size(); ++i)
      if (!series_[i].empty()) labels.push_back({py(series_[i].y.back()), i});
    if (labels.size() > kMostLabels) return {};
    std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.y < b.y; });
    constexpr double kApart = 12;
    for (size_t i = 1; i < labels.size(); ++i) labels[i].y = std::max(labels[i].y, labels[i - 1].y + kApart);
    double limit = kHeight - kBottom + 2;
    for (size_t i = labels.size(); i-- > 0; limit = labels[i].y - kApart) labels[i].y = std::min(labels[i].y, limit);
    std::string out;
    for (const Label& l : labels)
      out += concat("<text class=\"end t", chart_.lines[l.line].color, "\" x=\"", kWidth - kRight + 5, "\" y=\"",
                    fixed(l.y + 3.5), "\">", end_label(series_[l.line].y.back()), "</text>");
    return out;
  }

  // Four digits; three below 1 and from 10000 on.
  static std::string end_label(double y) {
    const double a = std::abs(y);
    if (a > 0 && a < 1e-3) return tick_text(y, y);
    if (a >= 1e4) return tick_text(y, std::pow(10.0, std::floor(std::log10(a)) - 2));
    const double unit = a < 1 && a > 0 ? std::pow(10.0, std::floor(std::log10(a)) - 2) : 0;
    return number_text(unit > 0 ? std::round(y / unit) * unit : y);
  }

  const Chart& chart_;
  const std::vector<Series> series_;
  const Axis x_, y_;
};

}  // namespace

Series thinned(const Series& series, int buckets) {
  Series all;
  for (size_t i = 0; i < series.x.size(); ++i)
    if (std::isfinite(series.x[i]) && std::isfinite(series.y[i])) all.add(series.x[i], series.y[i]);
  const size_t n = all.x.size();
  if (n <= static_cast<size_t>(2 * buckets)) return all;
  Series out;
  const double first = all.x.front(), range = std::max(all.x.back() - first, 1e-9);
  const auto bucket = [&](size_t i) {
    return static_cast<int>(std::clamp((all.x[i] - first) / range * buckets, 0.0, buckets - 1.0));
  };
  for (size_t begin = 0; begin < n;) {
    size_t end = begin, low = begin, high = begin;
    for (; end < n && bucket(end) == bucket(begin); ++end) {
      if (all.y[end] < all.y[low]) low = end;
      if (all.y[end] > all.y[high]) high = end;
    }
    std::vector<size_t> kept{std::min(low, high), std::max(low, high)};
    if (begin == 0) kept.insert(kept.begin(), 0);
    if (end == n) kept.push_back(n - 1);
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const size_t i : kept) out.add(all.x[i], all.y[i]);
    begin = end;
  }
  return out;
}

std::string chart_html(const Chart& chart) {
  std::vector<Series> drawn;
  bool any = false;
  for (const ChartLine& line : chart.lines) {
    drawn.push_back(line.series == nullptr ? Series{} : thinned(*line.series, chart.buckets));
    any = any || !drawn.back().empty();
  }
  if (!any) return {};
  std::string out = concat("<figure><figcaption><b>", escaped(chart.title), "</b>",
                           chart.unit.empty() ? "" : concat(" <span class=\"unit\">", escaped(chart.unit), "</span>"));
  if (chart.lines.size() > 1) {
    out += "<span class=\"legend\">";
    for (size_t i = 0; i < chart.lines.size(); ++i)
      if (!drawn[i].empty())
        out += concat("<span><i class=\"b", chart.lines[i].color, chart.lines[i].faint ? " faint" : "", "\"></i>",
                      escaped(chart.lines[i].label), "</span>");
    out += "</span>";
  }
  return out + "</figcaption>" + Picture(chart, std::move(drawn)).svg() + "</figure>\n";
}

}  // namespace bitgrad::html
