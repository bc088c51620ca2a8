// flatten and shortcut_a: pixels are moved, not computed with.
#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/spatial.h"
#include "kernels/conv.h"
#include "kernels/map/map.h"
#include "kernels/pointwise.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

constexpr std::string_view kFlatten = "flatten";

// Rows of codes [n * rows, c], each `stride` bytes, as rows of rows * c codes.
Tensor joined_rows(const Tensor& x, int64_t samples, int64_t rows) {
  const Tensor y = Tensor::empty({samples, rows * x.cols()}, x.dtype());
  kernels::GatherWindowsArgs args;
  args.geometry = {rows, 1, 1, 1, rows, 1};
  args.image = args.pad = x.data();  // no window extends outside
  args.stride = x.stride();
  args.bits = x.cols() * x.dtype().bits();
  args.row_stride = y.stride();
  const auto run = [&](int64_t begin, int64_t end) {
    kernels::GatherWindowsArgs part = args;
    part.begin = begin;
    part.end = end;
    part.rows = static_cast<char*>(y.data()) + begin * y.stride();
    kernels::gather_windows(part);
  };
  if (current_device().is_cpu())
    parallel_ranges(samples, rows_per_task(rows), run);
  else if (samples > 0)
    run(0, samples);
  return y.with_quant(x.quant());
}

// Concatenates the elements of a sample. Packed rows that do not fill whole words are copied together, as the single
// window of a convolution whose kernel is the whole sample (kernels/conv.h).
struct Flatten {
  static constexpr std::string_view kName = kFlatten;
  struct Saved {
    Shape shape;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    s.shape = x.shape();
    require(s.shape.rank() >= 2, kFlatten, "x must have samples of elements [n,...]: got ", x);
    int64_t elements = 1;
    for (int64_t i = 1; i < s.shape.rank(); ++i) elements *= s.shape[i];
    const int64_t samples = s.shape[0], rows = x.cols() == 0 ? 1 : elements / x.cols();
    const bool whole_words = x.cols() * x.dtype().bits() % 64 == 0;
    if (!x.dtype().is_code() || rows == 1 || whole_words) return x.reshape({samples, elements});
    require(x.layout() == layouts::canonical, kFlatten, "x must be canonical codes, got layout ", x.layout(), " of ",
            x);
    require(!x.quant() || x.quant()->granularity.kind == Granularity::kTensor, kFlatten, "x ", x, " has scales per ",
            x.quant() ? x.quant()->granularity : Granularity{}, ", expected one per tensor. Quantize after flatten");
    return joined_rows(x, samples, rows);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(wide(gy[0]).reshape(s.shape));
  }
};

constexpr std::string_view kShortcut = "shortcut_a";

// Every stride-th pixel of an image, with channels of zeros before and after.
struct ShortcutA {
  static constexpr std::string_view kName = kShortcut;
  struct Saved {
    Shape x;
    std::array<int64_t, 2> stride;
  };

  // Copies between the pixels of `full` that y [n,oh,ow,o] contains and their places in y. `back`: from y.
  static void copy_pixels(const Tensor& full, const Tensor& y, const Saved& s, bool back) {
    const Shape &from = s.x, &to = y.shape();
    const int64_t size[] = {to[0], to[1], to[2], from[3]};
    const int64_t steps[] = {from[1] * from[2] * from[3], s.stride[0] * from[2] * from[3], s.stride[1] * from[3], 1};
    const int64_t y_steps[] = {to[1] * to[2] * to[3], to[2] * to[3], to[3], 1};
    const int64_t before = (to[3] - from[3]) / 2;
    void* const inside = static_cast<char*>(y.data()) + before * y.dtype().bits() / 8;
    kernels::StridedCopyArgs args;
    args.x = {back ? inside : full.data(), y.dtype(), {}};
    args.y = {back ? full.data() : inside, y.dtype(), {}};
    std::copy(size, size + 4, args.size);
    std::copy(steps, steps + 4, back ? args.y.step : args.x.step);
    std::copy(y_steps, y_steps + 4, back ? args.x.step : args.y.step);
    if (y.numel() > 0) kernels::strided_copy(args);
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, int64_t out, const std::array<int64_t, 2>& stride) {
    const Tensor& x = in[0];
    require_values(kShortcut, "x", x);
    require(x.shape().rank() == 4, kShortcut, "x must be images [n,h,w,c]: got ", x);
    require(out >= x.cols(), kShortcut, "x ", x, " has more channels than out: got ", out, ", expected at least ",
            x.cols());
    require(stride[0] >= 1 && stride[1] >= 1, kShortcut, "stride: got [", stride[0], ',', stride[1],
            "], expected at least 1");
    s = {x.shape(), stride};
    const auto left = [](int64_t size, int64_t step) { return (size + step - 1) / step; };
    Tensor y =
        Tensor::zeros({x.shape()[0], left(x.shape()[1], stride[0]), left(x.shape()[2], stride[1]), out}, x.dtype());
    copy_pixels(x, y, s, false);
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gy = wide(gy_edge[0]), gx = Tensor::zeros(s.x, gy.dtype());
    copy_pixels(gx, gy, s, true);
    g[0].set_rounded(gx);
  }
};

}  // namespace

Var flatten(const Var& x) { return apply<Flatten>({x}); }

Var shortcut_a(const Var& x, int64_t out, const std::array<int64_t, 2>& stride) {
  if (x.shape().rank() == 4 && out == x.shape()[3] && stride == std::array<int64_t, 2>{1, 1}) return x;
  return apply<ShortcutA>({x}, out, stride);
}

}  // namespace bitgrad
