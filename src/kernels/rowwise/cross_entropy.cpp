// Family rowwise: softmax cross-entropy with integer targets, and its gradient.
#include <atomic>

#include "bitgrad/base/math.h"
#include "kernels/kernel_table.h"
#include "kernels/rowwise.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels {

namespace rowwise {

int64_t class_of(int32_t target, int64_t cols, uint32_t* flags) {
  if (target >= 0 && target < cols) return target;
  if (flags != nullptr) std::atomic_ref<uint32_t>(*flags).fetch_or(kFlagNoClass, std::memory_order_relaxed);
  return 0;
}

}  // namespace rowwise

using namespace rowwise;

namespace {

// The elements of a row, read in pieces of one chunk, so that no buffer is as long as a row.
class RowInPieces {
 public:
  RowInPieces(const FloatsIn& x, int64_t start) : x_(x), start_(start) {}
  const float* read(int64_t first, int64_t n) { return read_floats(x_, start_ + first, n, piece_); }
  float at(int64_t i) { return *read(i, 1); }

 private:
  FloatsIn x_;
  int64_t start_;
  alignas(64) float piece_[kChunkOfRow];
};

float top_of(RowInPieces& row, int64_t cols) {
  const auto chunk = reduce_loops::loops().chunk[static_cast<int>(ReduceRule::kMax)];
  return join_chunks_of_row<float>(
      cols, [&](int64_t first, int64_t n) { return chunk(n, row.read(first, n), nullptr, 0); },
      [](float a, float v) { return v > a ? v : a; });
}

float total_of_exp(RowInPieces& row, int64_t cols, float top) {
  const auto chunk = reduce_loops::loops().chunk[static_cast<int>(ReduceRule::kSum)];
  alignas(64) float e[kChunkOfRow];
  return join_chunks_of_row<float>(
      cols,
      [&](int64_t first, int64_t n) {
        loops().exp_minus(n, row.read(first, n), top, e);
        return chunk(n, e, nullptr, 0);
      },
      [](float a, float v) { return a + v; });
}

}  // namespace

void cpu::cross_entropy_rows(const CrossEntropyRowsArgs& args) {
  if (is_fp64(args.x)) return cross_entropy_fp64(args);
  const int64_t cols = args.cols;
  for_ranges_of_rows(args.rows, cols, 0, [&](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; ++r) {
      float &loss = floats(args.loss)[r], &top = floats(args.top)[r], &total = floats(args.total)[r];
      loss = top = 0;
      total = 1;
      if (args.targets[r] == args.ignore) continue;
      RowInPieces row(args.x, r * cols);
      top = top_of(row, cols);
      total = total_of_exp(row, cols, top);
      loss = math::log(total) - (row.at(class_of(args.targets[r], cols, args.flags)) - top);
    }
  });
}

void cpu::cross_entropy_rows_backward(const CrossEntropyRowsBackwardArgs& args) {
  if (is_fp64(args.x)) return cross_entropy_backward_fp64(args);
  const int64_t cols = args.cols;
  const float factor = *floats(args.factor);
  for_ranges_of_rows(args.rows, cols, 1, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r) {
      float* const gx = floats(args.gx) + r * cols;
      if (args.targets[r] == args.ignore) {
        std::fill(gx, gx + cols, 0.0f);
        continue;
      }
      const float* const x = read_floats(args.x, r * cols, cols, space);
      const float top = floats(args.top)[r], total = floats(args.total)[r];
      const int64_t label = class_of(args.targets[r], cols, nullptr);
      const float of_label = (math::exp(x[label] - top) / total - 1.0f) * factor;
      loops().cross_entropy_backward(cols, x, top, total, factor, gx);
      gx[label] = of_label;
    }
  });
}

}  // namespace bitgrad::kernels
