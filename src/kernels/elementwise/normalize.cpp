// Family elementwise: the normalization of batch norm and tensor norm, and its backward (Ioffe and Szegedy 2015, arXiv
// 1502.03167, section 3).
#include <algorithm>
#include <array>
#include <list>
#include <tuple>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
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

// The values per column, and the arrays of rows.
constexpr auto columns_of(const NormalizeArgs&) {
  using Args = NormalizeArgs;
  return std::array{&Args::mean, &Args::inv, &Args::gamma, &Args::beta};
}
constexpr auto columns_of(const NormalizeBackwardArgs&) {
  using Args = NormalizeBackwardArgs;
  return std::array{&Args::mean, &Args::inv, &Args::gamma, &Args::mean_gy, &Args::mean_gy_xhat, &Args::clip_beta};
}
constexpr auto arrays_of(const NormalizeArgs&) { return std::tuple(&NormalizeArgs::x, &NormalizeArgs::y); }
constexpr auto arrays_of(const NormalizeBackwardArgs&) {
  return std::tuple(&NormalizeBackwardArgs::x, &NormalizeBackwardArgs::gy, &NormalizeBackwardArgs::gx);
}

// `count` rows from element (r, c) on.
template <typename Args>
Args rows_from(Args args, int64_t r, int64_t c, int64_t count) {
  const int64_t at = r * args.cols + c;
  args.rows = count;
  for (const auto column : columns_of(args))
    if (args.*column != nullptr) args.*column += c * args.column_step;
  std::apply([&](auto... array) { ((args.*array = (args.*array).from(at)), ...); }, arrays_of(args));
  return args;
}

template <typename Args>
bool all_fp32(const Args& args) {
  return std::apply([&](auto... array) { return (!(args.*array).bf16() && ...); }, arrays_of(args));
}

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

// All rows, several narrow ones as one.
template <typename Args>
void normalize_rows(NormalizeLoop<Args> loop, const Args& args) {
  const int64_t together = args.column_step == 0 ? 1 : rows_together(args.rows, args.cols);
  const int64_t long_rows = args.rows / together, done = long_rows * together;
  Repeated repeated(args.cols, together);
  Args wide = args;
  wide.rows = long_rows;
  wide.cols = args.cols * together;
  if (together > 1)
    for (const auto column : columns_of(args)) wide.*column = repeated(args.*column);
  run_rows(loop, wide);
  if (done < args.rows) run_rows(loop, rows_from(args, done, 0, args.rows - done));
}

}  // namespace

void cpu::normalize(const NormalizeArgs& args) {
  const auto& loops = elementwise::loops();
  normalize_rows(args.column_step == 0 ? loops.normalize_one : loops.normalize, args);
}

void cpu::normalize_backward(const NormalizeBackwardArgs& args) {
  const auto& loops = elementwise::loops();
  normalize_rows(args.column_step == 0 ? loops.normalize_backward_one : loops.normalize_backward, args);
}

bool cpu::normalize_joins(int64_t rows, int64_t cols) {
  const int64_t together = rows_together(rows, cols);
  return cols > 0 && cols * together % 64 == 0 && rows % together == 0;
}

void cpu::normalize_add_hardtanh(const NormalizeArgs& args, const float* b, uint64_t* inside) {
  const int64_t together = rows_together(args.rows, args.cols), cols = args.cols * together;
  Repeated repeated(args.cols, together);
  NormalizeArgs wide = args;
  wide.cols = cols;
  for (const auto column : columns_of(args)) wide.*column = repeated(args.*column);
  const auto loop = elementwise::loops().normalize_add_hardtanh;
  for_row_blocks(args.rows / together, cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const int64_t at = r0 * cols + c0;
    loop(c1 - c0, rows_from(wide, r0, c0, r1 - r0), b + at, inside != nullptr ? inside + at / 64 : nullptr);
  });
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
