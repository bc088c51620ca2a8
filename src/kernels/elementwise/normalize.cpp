// Family elementwise: the normalization of batch norm and tensor norm, and its backward (Ioffe and Szegedy 2015, arXiv
// 1502.03167, section 3).
#include <algorithm>
#include <list>
#include <vector>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/fused_elementwise.h"
#include "bitgrad/kernels/kernel_table.h"
#include "kernels/cpu_kernels.h"
#include "kernels/elementwise/loops.h"
#include "kernels/elementwise/tiles.h"

namespace bitgrad::kernels {
namespace {

// Narrow adjacent rows are treated as one longer row with repeated per-column values, so that loops run over at least
// this many elements.
constexpr int64_t kLongRow = 256;

// Number of rows that are processed as one; 1 if that gains nothing.
int64_t rows_together(int64_t rows, int64_t cols) {
  const int64_t together = cols > 0 && cols < kLongRow / 2 ? kLongRow / cols : 1;
  return rows >= 2 * together ? together : 1;
}

// Per-column values, repeated for several rows.
class Repeated {
 public:
  Repeated(int64_t cols, int64_t times) : cols_(cols), times_(times) {}
  const float* operator()(const float* numbers) {
    if (numbers == nullptr) return nullptr;
    std::vector<float>& out = kept_.emplace_back(static_cast<size_t>(cols_ * times_));
    for (int64_t i = 0; i < times_; ++i) std::copy(numbers, numbers + cols_, out.begin() + i * cols_);
    return out.data();
  }

 private:
  int64_t cols_, times_;
  std::list<std::vector<float>> kept_;
};

void normalize_rows(const NormalizeArgs& args) {
  const auto& loops = elementwise::loops();
  const auto loop = args.column_step == 0 ? loops.normalize_one : loops.normalize;
  for_row_blocks(args.rows, args.cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    NormalizeArgs part = args;
    const int64_t shift = c0 * args.column_step, at = r0 * args.cols + c0;
    part.mean += shift;
    part.inv += shift;
    part.gamma += shift;
    part.beta += shift;
    part.rows = r1 - r0;
    part.x += at;
    part.y += at;
    loop(c1 - c0, part);
  });
}

void backward_rows(const NormalizeBackwardArgs& args) {
  const auto& loops = elementwise::loops();
  const auto loop = args.column_step == 0 ? loops.normalize_backward_one : loops.normalize_backward;
  for_row_blocks(args.rows, args.cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    NormalizeBackwardArgs part = args;
    const int64_t shift = c0 * args.column_step, at = r0 * args.cols + c0;
    part.mean += shift;
    part.inv += shift;
    part.gamma += shift;
    part.mean_gy += shift;
    part.mean_gy_xhat += shift;
    if (part.clip_beta != nullptr) part.clip_beta += shift;
    part.rows = r1 - r0;
    part.x += at;
    part.gy += at;
    part.gx += at;
    loop(c1 - c0, part);
  });
}

}  // namespace

void cpu::normalize(const NormalizeArgs& args) {
  const int64_t together = args.column_step == 0 ? 1 : rows_together(args.rows, args.cols);
  const int64_t long_rows = args.rows / together, done = long_rows * together;
  Repeated repeated(args.cols, together);
  NormalizeArgs wide = args;
  wide.rows = long_rows;
  wide.cols = args.cols * together;
  if (together > 1) {
    wide.mean = repeated(args.mean);
    wide.inv = repeated(args.inv);
    wide.gamma = repeated(args.gamma);
    wide.beta = repeated(args.beta);
  }
  normalize_rows(wide);
  if (done == args.rows) return;
  NormalizeArgs rest = args;
  rest.rows = args.rows - done;
  rest.x += done * args.cols;
  rest.y += done * args.cols;
  normalize_rows(rest);
}

bool cpu::normalize_joins(int64_t rows, int64_t cols) {
  const int64_t together = rows_together(rows, cols);
  return cols > 0 && cols * together % 64 == 0 && rows % together == 0;
}

void cpu::normalize_add_hardtanh(const NormalizeArgs& args, const float* b, uint64_t* inside) {
  const int64_t together = rows_together(args.rows, args.cols), cols = args.cols * together;
  Repeated repeated(args.cols, together);
  const float *const mean = repeated(args.mean), *const inv = repeated(args.inv), *const gamma = repeated(args.gamma),
                     *const beta = repeated(args.beta);
  const auto loop = elementwise::loops().normalize_add_hardtanh;
  for_row_blocks(args.rows / together, cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const int64_t at = r0 * cols + c0;
    NormalizeArgs part = args;
    part.rows = r1 - r0;
    part.cols = cols;
    part.x += at;
    part.y += at;
    part.mean = mean + c0;
    part.inv = inv + c0;
    part.gamma = gamma + c0;
    part.beta = beta + c0;
    loop(c1 - c0, part, b + at, inside != nullptr ? inside + at / 64 : nullptr);
  });
}

void cpu::normalize_backward(const NormalizeBackwardArgs& args) {
  const int64_t together = args.column_step == 0 ? 1 : rows_together(args.rows, args.cols);
  const int64_t long_rows = args.rows / together, done = long_rows * together;
  Repeated repeated(args.cols, together);
  NormalizeBackwardArgs wide = args;
  wide.rows = long_rows;
  wide.cols = args.cols * together;
  if (together > 1) {
    wide.mean = repeated(args.mean);
    wide.inv = repeated(args.inv);
    wide.gamma = repeated(args.gamma);
    wide.mean_gy = repeated(args.mean_gy);
    wide.mean_gy_xhat = repeated(args.mean_gy_xhat);
    wide.clip_beta = repeated(args.clip_beta);
  }
  backward_rows(wide);
  if (done == args.rows) return;
  NormalizeBackwardArgs rest = args;
  rest.rows = args.rows - done;
  rest.x += done * args.cols;
  rest.gy += done * args.cols;
  rest.gx += done * args.cols;
  backward_rows(rest);
}

void cpu::normalize_backward_of_pool(const NormalizeBackwardArgs& args, const MaxPoolGradientArgs& pool) {
  const WindowGeometry& g = pool.geometry;
  const int64_t row = g.w * args.cols;
  // Whole rows of windows if windows do not overlap or leave gaps.
  const int64_t grain = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, row * g.stride_y)) * g.stride_y;
  parallel_ranges(pool.images * g.h, grain, [&](int64_t begin, int64_t end) {
    NormalizeBackwardArgs part = args;
    part.rows = (end - begin) * g.w;
    part.x += begin * row;
    part.gx += begin * row;
    part.gy = part.gx;
    max_pool_gradient_rows(pool, begin, end, part.gx);
    cpu::normalize_backward(part);
  });
}

}  // namespace bitgrad::kernels
