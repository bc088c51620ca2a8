// Family pointwise: strided copies. If the inner axis is contiguous in both x and y, lines are copied directly. If x is
// contiguous along another axis than y, the copy proceeds in square tiles of the two axes.
#include <algorithm>

#include "kernels/kernel_table.h"
#include "kernels/map/pointwise.h"
#include "kernels/pointwise.h"
#include "kernels/pointwise/lines.h"

namespace bitgrad::kernels {

using namespace pointwise_loops;

namespace {

template <typename T>
void copy_line(const T* x, int64_t x_step, T* y, int64_t y_step, int64_t n) {
  if (x_step == 1 && y_step == 1)
    std::copy_n(x, n, y);
  else if (y_step == 1)
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * x_step];
  else
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = x[i * x_step];
}

// x is contiguous along `axis`, y along the inner axis. Copies in squares, so that the lines of x stay in cache while
// those of y are written.
template <typename T>
void copy_squares(const Walk<2>& walk, int axis, const T* x, T* y) {
  constexpr int64_t kSide = sizeof(T) <= 4 ? 64 : 32, kInner = kPointwiseAxes - 1;
  const int64_t along = walk.size[axis], stripes = (along + kSide - 1) / kSide, others = walk.outer() / along;
  const int first = axis == 0 ? 1 : 0, second = axis == 2 ? 1 : 2;  // the other two outer axes
  const int64_t grain = std::max<int64_t>(1, kTileElements / (kSide * walk.inner()));
  parallel_ranges(others * stripes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t other = s / stripes, j0 = s % stripes * kSide, side = std::min(kSide, along - j0);
      const int64_t p = other / walk.size[second], q = other % walk.size[second];
      const T* const from = x + p * walk.step[0][first] + q * walk.step[0][second] + j0;
      T* const to = y + p * walk.step[1][first] + q * walk.step[1][second] + j0 * walk.step[1][axis];
      for (int64_t i0 = 0; i0 < walk.inner(); i0 += kSide) {
        const int64_t count = std::min(kSide, walk.inner() - i0);
        const T* const in = from + i0 * walk.step[0][kInner];
        T* const out = to + i0 * walk.step[1][kInner];
        for (int64_t j = 0; j < side; ++j)
          copy_line(in + j, walk.step[0][kInner], out + j * walk.step[1][axis], walk.step[1][kInner], count);
      }
    }
  });
}

template <typename T>
void copy_bits(const Walk<2>& walk, const void* x, void* y) {
  const T* const from = static_cast<const T*>(x);
  T* const to = static_cast<T*>(y);
  if (walk.inner_step(0) != 1)
    for (int axis = kPointwiseAxes - 2; axis >= 0; --axis)
      if (walk.size[axis] > 1 && walk.step[0][axis] == 1) return copy_squares(walk, axis, from, to);
  for_lines(walk, [&](const auto& at, int64_t begin, int64_t end) {
    const int64_t x_step = walk.inner_step(0), y_step = walk.inner_step(1);
    copy_line(from + at.start(0) + begin * x_step, x_step, to + at.start(1) + begin * y_step, y_step, end - begin);
  });
}

void copy_converted(const StridedCopyArgs& args, const Walk<2>& walk) {
  for_lines(walk, [&](const auto& at, int64_t begin, int64_t end) {
    const InputLine x{moved(args.x.data, args.x.dtype, at.start(0)), args.x.dtype == dtypes::bf16, walk.inner_step(0)};
    const OutputLine y{const_cast<void*>(moved(args.y.data, args.y.dtype, at.start(1))), args.y.dtype == dtypes::bf16,
                       walk.inner_step(1)};
    alignas(64) float space[kPiece];
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t n = std::min(kPiece, end - i);
      const float* const values = x.read(i, n, y.place(i, space));
      y.write(i, n, values);
    }
  });
}

}  // namespace

void strided_copy(const StridedCopyArgs& args) {
  if (is_empty(args.size)) return;
  const Walk<2> walk = merged_walk<2>(args.size, {args.x.step, args.y.step});
  const bool convert = args.x.dtype != args.y.dtype;
  const int bytes = args.y.dtype.bits() / 8;
  if (!current_device().is_cpu()) {
    const auto conversion = !convert                       ? maps::CopyRuns::kBits
                            : args.y.dtype == dtypes::bf16 ? maps::CopyRuns::kToBf16
                                                           : maps::CopyRuns::kFromBf16;
    const maps::CopyRuns runs{maps::places_of(walk), args.x.data, args.y.data, bytes, conversion};
    return run_map(runs, runs.places.runs());
  }
  if (convert) return copy_converted(args, walk);
  if (bytes == 1) return copy_bits<uint8_t>(walk, args.x.data, args.y.data);
  if (bytes == 2) return copy_bits<uint16_t>(walk, args.x.data, args.y.data);
  if (bytes == 4) return copy_bits<uint32_t>(walk, args.x.data, args.y.data);
  copy_bits<uint64_t>(walk, args.x.data, args.y.data);
}

}  // namespace bitgrad::kernels
