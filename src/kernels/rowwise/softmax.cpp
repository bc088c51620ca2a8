// Family rowwise: softmax and its backward.
#include "kernels/kernel_table.h"
#include "kernels/rowwise.h"
#include "kernels/rowwise/rows.h"

namespace bitgrad::kernels {

using namespace rowwise;

void cpu::softmax_rows(const SoftmaxRowsArgs& args) {
  if (is_fp64(args.x)) return softmax_fp64(args);
  const int64_t cols = args.cols;
  for_ranges_of_rows(args.rows, cols, 2, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const x = read_floats(args.x, r * cols, cols, space);
      float* const y = place_floats(args.y, r * cols, space + cols);
      loops().exp_minus(cols, x, reduce_row(ReduceRule::kMax, x, cols), y);
      elementwise::loops().divide(cols, y, reduce_row(ReduceRule::kSum, y, cols));
      write_floats(args.y, r * cols, cols, y);
    }
  });
}

void cpu::softmax_rows_backward(const SoftmaxRowsBackwardArgs& args) {
  if (is_fp64(args.y)) return softmax_backward_fp64(args);
  const int64_t cols = args.cols;
  for_ranges_of_rows(args.rows, cols, 2, [&](int64_t begin, int64_t end, float* space) {
    for (int64_t r = begin; r < end; ++r) {
      const float* const y = read_floats(args.y, r * cols, cols, space);
      const float* const gy = read_floats(args.gy, r * cols, cols, space + cols);
      const float dot = reduce_row(ReduceRule::kSum, gy, cols, y);
      loops().softmax_backward(cols, y, gy, dot, floats(args.gx) + r * cols);
    }
  });
}

}  // namespace bitgrad::kernels
