// Family pointwise: functions of two strided arrays. The inner axis runs through the loops of the allowed ISA; the
// other axes are cut by shape. bf16 or non-contiguous data goes through buffers of kPiece elements.
#include "kernels/pointwise.h"

#include <algorithm>

#include "kernels/kernel_table.h"
#include "kernels/map/pointwise.h"
#include "kernels/pointwise/lines.h"
#include "kernels/pointwise/loops.h"

namespace bitgrad::kernels {

using namespace pointwise_loops;

namespace {

void run_line(PointwiseOp op, const InputLine& a, const InputLine& b, const OutputLine& y, int64_t begin, int64_t end) {
  const PointwiseLoops& loops = pointwise_loops::loops();
  const bool one_b = b.step == 0, one_a = a.step == 0 && !one_b;
  const auto* const forms = one_b ? loops.one_b : (one_a ? loops.one_a : loops.both);
  const bool direct = (one_a || a.side_by_side()) && (one_b || b.side_by_side()) && y.side_by_side();
  const int64_t piece = direct ? end - begin : kPiece;
  alignas(64) float space_a[kPiece], space_b[kPiece], space_y[kPiece];
  for (int64_t i = begin; i < end; i += piece) {
    const int64_t n = std::min(piece, end - i);
    float* const out = y.place(i, space_y);
    forms[static_cast<int>(op)](n, a.read(one_a ? 0 : i, one_a ? 1 : n, space_a),
                                b.read(one_b ? 0 : i, one_b ? 1 : n, space_b), out);
    y.write(i, n, out);
  }
}

// Lines of the inner axis shorter than this do not get their own loop. Several lines along axis 2 are processed at
// once, through buffers unless they already form one line in memory.
constexpr int64_t kShortLine = 32;

class ShortLines {
 public:
  ShortLines(const PointwiseArgs& args, const Walk<3>& walk)
      : args_(args), walk_(walk), loop_(pointwise_loops::loops().both[static_cast<int>(args.op)]) {}
  void run() const {
    const int64_t n = walk_.inner(), max = kPiece / n;
    for_row_blocks(walk_.outer(), n, [&](int64_t r0, int64_t r1, int64_t, int64_t) {
      alignas(64) float space_a[kPiece], space_b[kPiece], space_y[kPiece];
      for (int64_t r = r0; r < r1;) {
        const int64_t lines = std::min({max, r1 - r, walk_.size[2] - r % walk_.size[2]});
        const WalkCursor<3> at(walk_, r);
        float* const y = is_one_line(args_.y.dtype, 2) ? static_cast<float*>(args_.y.data) + at.start(2) : space_y;
        loop_(lines * n, read(args_.a, 0, at.start(0), lines, space_a), read(args_.b, 1, at.start(1), lines, space_b),
              y);
        if (y == space_y) write(at.start(2), lines, y);
        r += lines;
      }
    });
  }

 private:
  bool is_one_line(DType dtype, int array) const {
    return dtype == dtypes::fp32 && walk_.inner_step(array) == 1 && walk_.step[array][2] == walk_.inner();
  }
  const float* read(const StridedInput& x, int array, int64_t start, int64_t lines, float* space) const {
    if (is_one_line(x.dtype, array)) return static_cast<const float*>(x.data) + start;
    float* to = space;
    for (int64_t k = 0; k < lines; ++k, start += walk_.step[array][2]) {
      const InputLine line{moved(x.data, x.dtype, start), x.dtype == dtypes::bf16, walk_.inner_step(array)};
      for (int64_t i = 0; i < walk_.inner(); ++i) *to++ = line.at(i);
    }
    return space;
  }
  void write(int64_t start, int64_t lines, const float* from) const {
    for (int64_t k = 0; k < lines; ++k, start += walk_.step[2][2]) {
      const OutputLine line{const_cast<void*>(moved(args_.y.data, args_.y.dtype, start)), args_.y.dtype == dtypes::bf16,
                            walk_.inner_step(2)};
      for (int64_t i = 0; i < walk_.inner(); ++i) line.put(i, *from++);
    }
  }

  const PointwiseArgs& args_;
  const Walk<3>& walk_;
  PointwiseLoops::Loop loop_;
};

#define BITGRAD_POINTWISE(name, value) \
  double value64_##name(double a, double b) { return value; }
#include "kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
constexpr double (*kValues64[])(double, double) = {
#define BITGRAD_POINTWISE(name, value) value64_##name,
#include "kernels/pointwise.inc"
#undef BITGRAD_POINTWISE
};

void pointwise_fp64(const PointwiseArgs& args, const Walk<3>& walk) {
  const auto value = kValues64[static_cast<int>(args.op)];
  for_lines(walk, [&](const auto& at, int64_t begin, int64_t end) {
    const double* const a = static_cast<const double*>(args.a.data) + at.start(0);
    const double* const b = static_cast<const double*>(args.b.data) + at.start(1);
    double* const y = static_cast<double*>(args.y.data) + at.start(2);
    for (int64_t i = begin; i < end; ++i)
      y[i * walk.inner_step(2)] = value(a[i * walk.inner_step(0)], b[i * walk.inner_step(1)]);
  });
}

}  // namespace

void pointwise(const PointwiseArgs& args) {
  if (is_empty(args.size)) return;
  const Walk<3> walk = merged_walk<3>(args.size, {args.a.step, args.b.step, args.y.step});
  if (args.y.dtype == dtypes::fp64) {
    if (!current_device().is_cpu()) detail::fail_fp64_on_device("pointwise");
    return pointwise_fp64(args, walk);
  }
  const bool bf16_a = args.a.dtype == dtypes::bf16, bf16_b = args.b.dtype == dtypes::bf16,
             bf16_y = args.y.dtype == dtypes::bf16;
  if (!current_device().is_cpu()) {
    const maps::PointwiseRuns runs{
        args.op, maps::places_of(walk), args.a.data, args.b.data, args.y.data, bf16_a, bf16_b, bf16_y};
    return run_map(runs, runs.places.runs());
  }
  if (walk.inner() <= kShortLine && walk.size[2] > 1) return ShortLines(args, walk).run();
  for_lines(walk, [&](const auto& at, int64_t begin, int64_t end) {
    const InputLine a{moved(args.a.data, args.a.dtype, at.start(0)), bf16_a, walk.inner_step(0)};
    const InputLine b{moved(args.b.data, args.b.dtype, at.start(1)), bf16_b, walk.inner_step(1)};
    const OutputLine y{const_cast<void*>(moved(args.y.data, args.y.dtype, at.start(2))), bf16_y, walk.inner_step(2)};
    run_line(args.op, a, b, y, begin, end);
  });
}

}  // namespace bitgrad::kernels
