// Curves over optimizer steps as SVG, with a legend.
#pragma once

#include <string>
#include <vector>

#include "train/html/run_data.h"

namespace bitgrad::html {

struct ChartLine {
  std::string label = {};
  const Series* series = nullptr;
  int color = 0;       // of kColors
  bool faint = false;  // thin: a curve behind another
};
inline constexpr int kColors = 8;

struct Chart {
  std::string title = {}, unit = {};
  std::vector<ChartLine> lines = {};
  double mark = -1;         // a step with a vertical line; below 0: none
  std::string marked = {};  // what it is
  bool may_be_log = false;  // a logarithmic axis where values span more than a factor of 50
  int buckets = 200;        // of the horizontal axis: of each the smallest and the largest value are drawn
};

// A figure; empty where no line has a value.
std::string chart_html(const Chart& chart);

// The values that are drawn: at most two of each bucket, in order, the first and the last one among them. Those that
// are not finite are left out.
Series thinned(const Series& series, int buckets);

}  // namespace bitgrad::html
