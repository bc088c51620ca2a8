// Family elementwise: the normalization of batch norm and tensor norm, and its backward (Ioffe and Szegedy 2015, arXiv
// 1502.03167, section 3).
#include <algorithm>
#include <list>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/fused_elementwise.h"
#include "kernels/kernel_table.h"

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

// `count` rows from element (r, c) on.
NormalizeArgs rows_from(NormalizeArgs args, int64_t r, int64_t c, int64_t count) {
  const int64_t shift = c * args.column_step, at = r * args.cols + c;
  args.rows = count;
  args.mean += shift;
  args.inv += shift;
  args.gamma += shift;
  args.beta += shift;
  args.x = args.x.from(at);
  args.y = args.y.from(at);
  return args;
}

NormalizeBackwardArgs rows_from(NormalizeBackwardArgs args, int64_t r, int64_t c, int64_t count) {
  const int64_t shift = c * args.column_step, at = r * args.cols + c;
  args.rows = count;
  args.mean += shift;
  args.inv += shift;
  args.gamma += shift;
  args.mean_gy += shift;
  args.mean_gy_xhat += shift;
  if (args.clip_beta != nullptr) args.clip_beta += shift;
  args.x = args.x.from(at);
  args.gy = args.gy.from(at);
  args.gx = args.gx.from(at);
  return args;
}

bool all_fp32(const NormalizeArgs& args) { return !args.x.bf16() && !args.y.bf16(); }
bool all_fp32(const NormalizeBackwardArgs& args) { return !args.x.bf16() && !args.gy.bf16() && !args.gx.bf16(); }

template <typename Args>
using NormalizeLoop = void (*)(int64_t n, const Args& args);

// The first n <= kFloatPiece elements of a row, through fp32 on the stack.
void run_piece(NormalizeLoop<NormalizeArgs> loop, int64_t n, NormalizeArgs piece) {
  alignas(64) float x[kFloatPiece];
  const FloatsOut y = piece.y;
  piece.x = read_floats(piece.x, 0, n, x);
  piece.y = place_floats(y, 0, x);
  loop(n, piece);
  write_floats(y, 0, n, x);
}

void run_piece(NormalizeLoop<NormalizeBackwardArgs> loop, int64_t n, NormalizeBackwardArgs piece) {
  alignas(64) float x[kFloatPiece], g[kFloatPiece];
  const FloatsOut gx = piece.gx;
  piece.x = read_floats(piece.x, 0, n, x);
  piece.gy = read_floats(piece.gy, 0, n, g);
  piece.gx = place_floats(gx, 0, g);
  loop(n, piece);
  write_floats(gx, 0, n, g);
}

template <typename Args>
void run_rows(NormalizeLoop<Args> loop, Args args) {
  const bool fp32 = all_fp32(args);
  if (!fp32 && args.column_step == 0) {  // one row, whose pieces are long
    args.cols *= args.rows;
    args.rows = args.cols == 0 ? 0 : 1;
  }
  for_row_blocks(args.rows, args.cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    if (fp32) return loop(c1 - c0, rows_from(args, r0, c0, r1 - r0));
    for (int64_t r = r0; r < r1; ++r)
      for_pieces(c1 - c0, [&](int64_t c, int64_t n) { run_piece(loop, n, rows_from(args, r, c0 + c, 1)); });
  });
}

void normalize_rows(const NormalizeArgs& args) {
  const auto& loops = elementwise::loops();
  run_rows(args.column_step == 0 ? loops.normalize_one : loops.normalize, args);
}

void backward_rows(const NormalizeBackwardArgs& args) {
  const auto& loops = elementwise::loops();
  run_rows(args.column_step == 0 ? loops.normalize_backward_one : loops.normalize_backward, args);
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
  if (done < args.rows) normalize_rows(rows_from(args, done, 0, args.rows - done));
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
    part.x = args.x.from(at);
    part.y = args.y.from(at);
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
  if (done < args.rows) backward_rows(rows_from(args, done, 0, args.rows - done));
}

void cpu::normalize_backward_of_pool(const NormalizeBackwardArgs& args, const MaxPoolGradientArgs& pool) {
  const WindowGeometry& g = pool.geometry;
  const int64_t row = g.w * args.cols;
  // Whole rows of windows if windows do not overlap or leave gaps.
  const int64_t grain = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, row * g.stride_y)) * g.stride_y;
  parallel_ranges(pool.images * g.h, grain, [&](int64_t begin, int64_t end) {
    NormalizeBackwardArgs part = args;
    part.rows = (end - begin) * g.w;
    float* const gx = args.gx.fp32() + begin * row;
    part.x = args.x.from(begin * row);
    part.gy = gx;
    part.gx = gx;
    max_pool_gradient_rows(pool, begin, end, gx);
    cpu::normalize_backward(part);
  });
}

}  // namespace bitgrad::kernels
