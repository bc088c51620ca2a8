// Adds rows of windows into images.
#include "bitgrad/base/error.h"
#include "kernels/conv/taps.h"
#include "kernels/kernel_table.h"
#include "kernels/pointwise/loops.h"

namespace bitgrad::kernels {
namespace {

using namespace conv;

// add(n, row, image): image[i] += row[i].
template <typename T, typename Add>
void add_all(const AddWindowsArgs& args, Add&& add) {
  const WindowGeometry& g = args.geometry;
  const int64_t c = args.channels, step = g.dilation_x * args.pixel;
  const T* row = static_cast<const T*>(args.rows);
  T* const image = static_cast<T*>(args.image) + args.first;
  WindowCursor at(g, args.begin);
  for (int64_t m = args.begin; m < args.end; ++m, at.next(), row += g.taps() * c) {
    const int64_t column = at.column();
    const TapRange taps = inside(g, column);
    for (int64_t ky = 0; ky < g.kh; ++ky) {
      const int64_t pixels = at.row(ky);
      if (pixels < 0 || taps.begin == taps.end) continue;
      const T* from = row + (ky * g.kw + taps.begin) * c;
      T* to = image + ((pixels * g.w + column) * args.pixel + taps.begin * step);
      if (step == c) {
        add((taps.end - taps.begin) * c, from, to);
      } else {
        for (int64_t kx = taps.begin; kx < taps.end; ++kx, from += c, to += step) add(c, from, to);
      }
    }
  }
}

template <typename T>
void add_plain(int64_t n, const T* from, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i];
}

// In two's complement (wraps).
void add_int32(int64_t n, const int32_t* from, int32_t* to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<int32_t>(static_cast<uint32_t>(to[i]) + static_cast<uint32_t>(from[i]));
}

}  // namespace

void cpu::add_windows(const AddWindowsArgs& args) {
  if (args.end <= args.begin || args.channels == 0) return;
  if (args.dtype == dtypes::fp32) {
    const auto add = pointwise_loops::loops().both[static_cast<int>(PointwiseOp::add)];
    return add_all<float>(args, [&](int64_t n, const float* from, float* to) { add(n, to, from, to); });
  }
  if (args.dtype == dtypes::fp64) return add_all<double>(args, add_plain<double>);
  ensure(args.dtype == dtypes::int32, "add_windows", "no sums of ", args.dtype);
  add_all<int32_t>(args, add_int32);
}

}  // namespace bitgrad::kernels
