// Maps: operations of networks of integers on int8 codes (src/nn/integer_network.cpp). The CPU has loops of its own for
// sums, averages and requantized sums (kernels/codes.h). docs/numerics.md section 4, "The integer scheme".
#pragma once

#include <cstring>

#include "bitgrad/nn/integer_ops.h"
#include "kernels/codes.h"
#include "kernels/conv.h"
#include "nn/map/list.h"

namespace bitgrad::maps {
namespace codes {

// Rows of elements, `step` of them apart.
template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t step = 0;
  BITGRAD_HD T* row(int64_t r) const { return data + r * step; }
};
// Runs of the columns of rows. Index: row * runs() + run.
struct Runs {
  int64_t cols = 0, run = 1;
  BITGRAD_HD int64_t runs() const { return (cols + run - 1) / run; }
  BITGRAD_HD int64_t row(int64_t i) const { return i / runs(); }
  BITGRAD_HD int64_t first(int64_t i) const { return i % runs() * run; }
  BITGRAD_HD int64_t count(int64_t first) const { return cols - first < run ? cols - first : run; }
  // y[row, c] = code(row, c) for the columns of a run.
  template <typename Code>
  BITGRAD_HD void write(int64_t i, const Rows<int8_t>& y, const Code& code) const {
    const int64_t r = row(i), begin = first(i), end = begin + count(begin);
    for (int64_t c = begin; c < end; ++c) y.row(r)[c] = static_cast<int8_t>(code(r, c));
  }
};

}  // namespace codes

// y += bias of the column.
struct BiasedSums {
  codes::Runs runs;
  const int32_t* bias;
  codes::Rows<int32_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t begin = runs.first(i), end = begin + runs.count(begin);
    int32_t* const row = y.row(runs.row(i));
    for (int64_t c = begin; c < end; ++c) row[c] += bias[c];
  }
};

// Sums to codes.
struct RequantizedSums {
  codes::Runs runs;
  kernels::codes::Stage stage;
  codes::Rows<const int32_t> x;
  codes::Rows<int8_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    const kernels::codes::Stage& s = stage;
    runs.write(i, y, [&](int64_t r, int64_t c) {
      const int32_t sum = inference::scaled_sum(static_cast<OutputRounding>(s.rule), x.row(r)[c],
                                                s.m == nullptr ? FixedPoint{} : FixedPoint{s.m[c], s.e[c]},
                                                s.factor == nullptr ? 0.0f : s.factor[c]);
      return inference::bounded_code(int64_t{sum} + s.zero, s.lo, s.hi);
    });
  }
};

// y = table[x + 128].
struct CodesByTable {
  codes::Runs runs;
  int8_t table[256];
  codes::Rows<const int8_t> x;
  codes::Rows<int8_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    runs.write(i, y, [&](int64_t r, int64_t c) { return table[x.row(r)[c] + 128]; });
  }
};

// Of two codes each.
template <typename Op>
struct JoinedCodes {
  codes::Runs runs;
  Op op;
  codes::Rows<const int8_t> a, b;
  codes::Rows<int8_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    runs.write(i, y, [&](int64_t r, int64_t c) { return inference::code_of(op, a.row(r)[c], b.row(r)[c]); });
  }
};
struct AddedCodes : JoinedCodes<inference::IntegerAdd> {};
struct MultipliedCodes : JoinedCodes<inference::IntegerMultiply> {};

// Means of windows. `runs` are of channels.
struct AveragedCodes {
  codes::Runs runs;
  kernels::WindowGeometry g;
  int32_t lo, hi;
  codes::Rows<const int8_t> x;
  codes::Rows<int8_t> y;
  // Calls f(pixel of x) for the pixels inside of window r; returns how many they are.
  template <typename F>
  BITGRAD_HD int32_t each(int64_t r, const F& f) const {
    const int64_t image = r / (g.oh * g.ow), top = r / g.ow % g.oh * g.stride_y - g.top,
                  left = r % g.ow * g.stride_x - g.left;
    int32_t count = 0;
    for (int64_t py = top > 0 ? top : 0; py < top + g.kh && py < g.h; ++py)
      for (int64_t px = left > 0 ? left : 0; px < left + g.kw && px < g.w; ++px, ++count)
        f((image * g.h + py) * g.w + px);
    return count;
  }
  BITGRAD_HD void operator()(int64_t i) const {
    runs.write(i, y, [&](int64_t r, int64_t c) {
      int32_t sum = 0;
      const int32_t count = each(r, [&](int64_t pixel) { sum += x.row(pixel)[c]; });
      return inference::mean_code(sum, count, lo, hi);
    });
  }
};

// The elements of x, in their order, become those of y, whose rows have y_cols of them. `runs` are of x.
struct MovedCodes {
  codes::Runs runs;
  codes::Rows<const int8_t> x;
  int64_t y_cols;
  codes::Rows<int8_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t r = runs.row(i), begin = runs.first(i), end = begin + runs.count(begin);
    int64_t to = (r * runs.cols + begin) / y_cols, at = (r * runs.cols + begin) % y_cols;
    for (int64_t c = begin, n; c < end; c += n, at = 0, ++to) {
      n = end - c < y_cols - at ? end - c : y_cols - at;
      memcpy(y.row(to) + at, x.row(r) + c, static_cast<size_t>(n));
    }
  }
};

// Images [n,h,w,c] with pixels of code `outside` around them: [n,ph,pw,c]. `runs` are of lines of pw * c codes.
struct PaddedCodes {
  codes::Runs runs;
  int64_t h, w, c, top, left, ph;
  int8_t outside;
  codes::Rows<const int8_t> x;
  codes::Rows<int8_t> y;
  BITGRAD_HD void operator()(int64_t i) const {
    const int64_t line = runs.row(i), begin = runs.first(i), end = begin + runs.count(begin), pw = runs.cols / c;
    const int64_t from = line % ph - top, lines = line / ph * h + from;
    int64_t pixel = begin / c, at = begin % c;
    for (int64_t done = begin, n; done < end; done += n, at = 0, ++pixel) {
      n = end - done < c - at ? end - done : c - at;
      int8_t* const to = y.row(line * pw + pixel) + at;
      if (from < 0 || from >= h || pixel < left || pixel >= left + w)
        memset(to, outside, static_cast<size_t>(n));
      else
        memcpy(to, x.row(lines * w + pixel - left) + at, static_cast<size_t>(n));
    }
  }
};

}  // namespace bitgrad::maps
