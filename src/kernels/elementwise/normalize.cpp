// Family elementwise: the normalisation of batch norm and tensor norm, and its backward (Ioffe and Szegedy 2015, arXiv
// 1502.03167, section 3).
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/kernel_table.h"
#include "kernels/cpu_kernels.h"
#include "kernels/elementwise/loops.h"
#include "kernels/elementwise/tiles.h"

namespace bitgrad::kernels {

void cpu::normalize(const NormalizeArgs& args) {
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
    if (part.xhat != nullptr) part.xhat += at;
    loop(c1 - c0, part);
  });
}

void cpu::normalize_backward(const NormalizeBackwardArgs& args) {
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
    part.rows = r1 - r0;
    part.x += at;
    part.gy += at;
    part.gx += at;
    loop(c1 - c0, part);
  });
}

}  // namespace bitgrad::kernels
