// Curves over optimizer steps as SVG, with a legend.
#pragma once

#include <string>
#include <vector>

#include "report/run_data.h"

namespace bitgrad::html {

struct ChartLine {
  std::string label = {};
  const Series* series = nullptr;
  int color = 0;       // index, below kColors
  bool faint = false;  // thin: a background curve
};
inline constexpr int kColors = 8;

struct Chart {
  std::string title = {}, unit = {};
  std::vector<ChartLine> lines = {};
  double mark = -1;         // a step with a vertical line; below 0: none
  std::string marked = {};  // its label
  bool may_be_log = false;  // logarithmic axis if values span more than a factor of 50
  int buckets = 200;        // of the horizontal axis; the minimum and maximum of each are drawn
};

// A figure; empty if no line has a value.
std::string chart_html(const Chart& chart);

// The values to draw, without non-finite ones: at most two per bucket, in order, always including the first and the
// last.
Series thinned(const Series& series, int buckets);

}  // namespace bitgrad::html
