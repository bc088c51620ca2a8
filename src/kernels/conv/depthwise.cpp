// Depthwise convolutions, with channels in lanes. A line is what one tap column reaches with a constant stride:
// positions (windows of a row, or pixels of a row that are a stride apart) whose taps read equally spaced pixels.
#include "kernels/conv.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/depthwise_rows.h"
#include "kernels/elementwise/loops.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

using namespace conv;

constexpr int64_t kDepthwiseTask = 1 << 18;  // multiply-adds per task
constexpr int64_t kLeastRows = 8, kPanelsOfTask = 8;

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// A tap along a line: position i reads pixel first + i * stride of `row` where begin <= i < end. Elsewhere it reads
// `outside`, or nothing if that is null. `number`: index of the tap.
template <typename T>
struct LineTap {
  const T *row, *outside;
  int64_t first, begin, end, number;
};

// A tap that covers pixels [0, width) at first + i * stride.
template <typename T>
LineTap<T> line_tap(const T* row, const T* outside, int64_t first, int64_t stride, int64_t width, int64_t number) {
  if (row == nullptr) return {row, outside, 0, 0, 0, number};
  return {row, outside, first, ceil_div(-first, stride), ceil_div(width - first, stride), number};
}

// Taps that read something at consecutive positions: their pixels at the first position, and their indices.
template <typename T>
struct Line {
  std::vector<LineTap<T>> taps;
  std::vector<const T*> x;
  std::vector<int64_t> number;

  // Calls run(i, count) for runs of positions with the same active taps. step: elements between pixels.
  template <typename Run>
  void each_run(int64_t begin, int64_t end, int64_t stride, int64_t step, Run&& run) {
    for (int64_t i = begin, next = end; i < end; i = next, next = end) {
      x.clear();
      number.clear();
      for (const LineTap<T>& t : taps) {
        const bool in = i >= t.begin && i < t.end;
        if (in) next = std::min(next, t.end);
        if (i < t.begin) next = std::min(next, t.begin);
        if (!in && t.outside == nullptr) continue;
        x.push_back(in ? t.row + (t.first + i * stride) * step : t.outside);
        number.push_back(t.number);
      }
      run(i, next - i);
    }
  }
};

void run_chain(const ChainCall<float>& call) { loops().depthwise_chain(call); }
void run_chain(const ChainCall<double>& call) { scalar::chain_fp64(call); }
void run_panel(const PanelCall<float>& call) { loops().depthwise_panel(call); }
void run_panel(const PanelCall<double>& call) { scalar::panel_fp64(call); }

// Pixels outside the image as a line reads them: `count` pixels, `step` elements apart, each channel `multiplier`
// times.
template <typename T>
std::vector<T> outside_pixels(const void* pad, const DepthwiseForm& form, int64_t count, int64_t step) {
  std::vector<T> out;
  if (pad == nullptr) return out;
  out.resize(static_cast<size_t>(std::max<int64_t>(0, (count - 1) * step) + form.outputs()));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < form.outputs(); ++j)
      out[static_cast<size_t>(i * step + j)] = static_cast<const T*>(pad)[j / form.multiplier];
  return out;
}

// The windows of rows of outputs, over the rows of x.
template <typename T>
class WindowLines {
 public:
  WindowLines(const DepthwiseForm& form, const DepthwiseImages& x, const void* pad)
      : g_(form.geometry),
        rows_(x, g_.h, g_.w, form.channels, RowForm::kRepeated, form.multiplier, (g_.kh - 1) * g_.dilation_y + 1),
        outside_(outside_pixels<T>(pad, form, g_.ow, step())) {}

  // Elements between what a tap reads at consecutive positions.
  int64_t step() const { return g_.stride_x * rows_.step(); }
  // Calls run(i, count) for windows [begin, end) of row r of all rows of windows; taps [first, last).
  template <typename Run>
  void each_run(int64_t r, int64_t begin, int64_t end, int64_t first, int64_t last, Run&& run) {
    const int64_t image = r / g_.oh, top = r % g_.oh * g_.stride_y - g_.top;
    const T* const outside = outside_.empty() ? nullptr : outside_.data();
    line.taps.clear();
    for (int64_t t = first; t < last; ++t) {
      const int64_t y = top + t / g_.kw * g_.dilation_y;
      const T* const row = y < 0 || y >= g_.h ? nullptr : rows_.row(image, y);
      if (row == nullptr && outside == nullptr) continue;
      line.taps.push_back(line_tap(row, outside, t % g_.kw * g_.dilation_x - g_.left, g_.stride_x, g_.w, t));
    }
    line.each_run(begin, end, g_.stride_x, rows_.step(), run);
  }
  Line<T> line;

 private:
  const WindowGeometry& g_;
  OpenRows<T> rows_;
  std::vector<T> outside_;
};

// Pointers to row `number` of a matrix, for each tap of a run.
template <typename T>
void point_at(const std::vector<int64_t>& numbers, T* matrix, int64_t cols, std::vector<T*>& out) {
  out.clear();
  for (const int64_t n : numbers) out.push_back(matrix + n * cols);
}

void write_numbers(DType dtype, int64_t n, const float* from, void* y, int64_t at) {
  if (dtype == dtypes::bf16) return elementwise::loops().to_bf16(n, from, static_cast<uint16_t*>(y) + at);
  ensure(dtype == dtypes::int32, "depthwise_forward", "no output of ", dtype);
  int32_t* const to = static_cast<int32_t*>(y) + at;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int32_t>(from[i]);
}
void write_numbers(DType dtype, int64_t, const double*, void*, int64_t) {
  fail_with(ErrorCode::kBug, "depthwise_forward", "no output of ", dtype, " of doubles");
}

int64_t rows_of_task(int64_t rows, int64_t macs_of_row) {
  return std::min(rows, std::max(kLeastRows, kDepthwiseTask / std::max<int64_t>(1, macs_of_row)));
}

template <typename T>
void forward(const DepthwiseForwardArgs& args) {
  const DepthwiseForm& form = args.form;
  const WindowGeometry& g = form.geometry;
  const int64_t lanes = form.outputs(), rows = form.samples * g.oh;
  const bool direct = args.y_dtype == (sizeof(T) == 4 ? dtypes::fp32 : dtypes::fp64);
  const int64_t grain = rows_of_task(rows, g.ow * lanes * (args.end_tap - args.first_tap));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    WindowLines<T> windows(form, args.x, args.pad);
    const Workspace space(direct ? 1 : g.ow * lanes * static_cast<int64_t>(sizeof(T)));
    std::vector<const T*> w;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * g.ow * lanes;
      T* const out = direct ? static_cast<T*>(args.y) + at : space.as<T>();
      windows.each_run(r, 0, g.ow, args.first_tap, args.end_tap, [&](int64_t i, int64_t count) {
        point_at(windows.line.number, static_cast<const T*>(args.w), lanes, w);
        run_chain(ChainCall<T>{count, lanes, static_cast<int64_t>(w.size()), windows.step(), windows.line.x.data(),
                               w.data(), args.scale, args.bias, out + i * lanes, lanes});
      });
      if (!direct) write_numbers(args.y_dtype, g.ow * lanes, out, args.y, at);
    }
  });
}

// The pixels of rows of an image, over the rows of gy. Pixels that are a stride apart have the same taps and form a
// line.
template <typename T>
class PixelLines {
 public:
  explicit PixelLines(const DepthwiseGxArgs& args)
      : form_(args.form),
        g_(form_.geometry),
        rows_(args.gy, g_.oh, g_.ow, form_.outputs(), RowForm::kSplit, form_.multiplier,
              (g_.kh - 1) * g_.dilation_y / g_.stride_y + 2) {}

  int64_t step() const { return rows_.step(); }
  // Calls run(i, count) for pixels [0, count) of row r of all rows, at phase + i * stride_x.
  template <typename Run>
  void each_run(int64_t r, int64_t phase, Run&& run) {
    const int64_t image = r / g_.h, plane = g_.ow * form_.channels;
    line.taps.clear();
    for (int64_t ky = g_.kh - 1; ky >= 0; --ky) {
      const int64_t y = r % g_.h + g_.top - ky * g_.dilation_y;
      if (y < 0 || y % g_.stride_y != 0 || y / g_.stride_y >= g_.oh) continue;
      const T* const row = rows_.row(image, y / g_.stride_y);
      for (int64_t kx = g_.kw - 1; kx >= 0; --kx) {
        const int64_t x = phase + g_.left - kx * g_.dilation_x, first = floor_div(x, g_.stride_x);
        if (x != first * g_.stride_x) continue;
        for (int64_t j = 0; j < form_.multiplier; ++j)
          line.taps.push_back(
              line_tap<T>(row + j * plane, nullptr, first, 1, g_.ow, (ky * g_.kw + kx) * form_.multiplier + j));
      }
    }
    line.each_run(0, ceil_div(g_.w - phase, g_.stride_x), 1, rows_.step(), run);
  }
  Line<T> line;

 private:
  const DepthwiseForm& form_;
  const WindowGeometry& g_;
  OpenRows<T> rows_;
};

template <typename T>
void gx(const DepthwiseGxArgs& args) {
  const DepthwiseForm& form = args.form;
  const WindowGeometry& g = form.geometry;
  const int64_t lanes = form.channels, rows = form.samples * g.h, step = g.stride_x * lanes;
  parallel_ranges(rows, rows_of_task(rows, g.w * form.outputs() * g.taps()), [&](int64_t begin, int64_t end) {
    PixelLines<T> pixels(args);
    std::vector<const T*> w;
    std::vector<float> scale(static_cast<size_t>(args.image_scale == nullptr ? 0 : lanes));
    for (int64_t r = begin; r < end; ++r) {
      if (args.image_scale != nullptr) std::fill(scale.begin(), scale.end(), args.image_scale[r / g.h]);
      for (int64_t phase = 0; phase < std::min(g.stride_x, g.w); ++phase) {
        T* const out = static_cast<T*>(args.gx) + (r * g.w + phase) * lanes;
        pixels.each_run(r, phase, [&](int64_t i, int64_t count) {
          point_at(pixels.line.number, static_cast<const T*>(args.w), lanes, w);
          run_chain(ChainCall<T>{count, lanes, static_cast<int64_t>(w.size()), pixels.step(), pixels.line.x.data(),
                                 w.data(), scale.empty() ? nullptr : scale.data(), nullptr, out + i * step, step});
        });
      }
    }
  });
}

template <typename T>
void gw(const DepthwiseGwArgs& args) {
  const DepthwiseForm& form = args.form;
  const WindowGeometry& g = form.geometry;
  const int64_t lanes = form.outputs(), size = g.taps() * lanes, all = form.samples * g.windows();
  parallel_ranges(ceil_div(all, kDepthwisePanel), kPanelsOfTask, [&](int64_t first, int64_t last) {
    WindowLines<T> windows(form, args.x, args.pad);
    OpenRows<T> gy(args.gy, g.oh, g.ow, lanes, RowForm::kPlain, 1, 1);
    std::vector<T*> sums;
    for (int64_t p = first; p < last; ++p) {
      T* const panel = static_cast<T*>(args.panels) + p * size;
      std::fill(panel, panel + size, T{0});
      const int64_t end = std::min(all, (p + 1) * kDepthwisePanel);
      for (int64_t m = p * kDepthwisePanel, next = m; m < end; m = next) {
        const int64_t r = m / g.ow;
        next = std::min(end, (r + 1) * g.ow);
        const T* const gradient = gy.row(r / g.oh, r % g.oh);
        windows.each_run(r, m - r * g.ow, next - r * g.ow, 0, g.taps(), [&](int64_t i, int64_t count) {
          point_at(windows.line.number, panel, lanes, sums);
          run_panel(PanelCall<T>{count, lanes, static_cast<int64_t>(sums.size()), windows.step(), windows.line.x.data(),
                                 sums.data(), gradient + i * gy.step(), gy.step()});
        });
      }
    }
  });
}

}  // namespace

void cpu::depthwise_forward(const DepthwiseForwardArgs& args) {
  args.x.dtype == dtypes::fp64 ? forward<double>(args) : forward<float>(args);
}
void cpu::depthwise_gx(const DepthwiseGxArgs& args) {
  args.gy.dtype == dtypes::fp64 ? gx<double>(args) : gx<float>(args);
}
void cpu::depthwise_gw(const DepthwiseGwArgs& args) {
  args.x.dtype == dtypes::fp64 ? gw<double>(args) : gw<float>(args);
}

}  // namespace bitgrad::kernels
