// Ops that look at the pixels of images [n,h,w,c] (NHWC). Numbers: docs/numerics.md section 10, "Images". All throw
// Error on a wrong shape or dtype.
#pragma once

#include <array>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// y [n, ...] with all axes but the first as one: of an image [n, h*w*c], its pixels one after another. Any dtype,
// dense. Codes whose rows are whole words stay where they are, others are packed anew; their scales must be per tensor
// (of any granularity where a sample is one row). The gradient is that of the elements.
Var flatten(const Var& x);

// Windows of a pool. Lengths are pixels, [rows, columns].
struct PoolOptions {
  std::array<int64_t, 2> size{2, 2}, stride{2, 2};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, left, bottom, right; each smaller than the window
};
// [oh, ow] of an image [h, w], as conv2d_output. Throws Error for options out of range, where no window fits, and where
// a window lies outside the image altogether.
std::array<int64_t, 2> pool_output(std::string_view where, int64_t h, int64_t w, const PoolOptions& options);

// y[n,oy,ox,c] = the largest x of the window; pixels outside are none of it. x [n,h,w,c]: fp32, bf16, fp64, or codes of
// kind int, uint or sign of at most 8 bits, whose codes are compared and whose scales (positive; per tensor or
// channel(1)) come along: of codes of one bit the OR of words. y in x's dtype. NaN is larger than every number.
// Backward: the gradient goes to the first largest element in row-major order (PyTorch, max_pool2d; of NaNs to the
// last), with ties as with any other. Kept: one byte an element of y (4 for windows of more than 256 pixels), of codes
// of one bit the codes of x.
Var max_pool(const Var& x, const PoolOptions& options);
// y = (sum of the window in row-major order) * (1/count), count the pixels inside (PyTorch's avg_pool2d with
// count_include_pad=False). x [n,h,w,c] fp32 or fp64, or bf16 (in fp32, rounded once); y in its dtype. Nothing is kept.
Var avg_pool(const Var& x, const PoolOptions& options);
// [n,h,w,c] -> [n,c]: the same over whole images.
Var global_avg_pool(const Var& x);

// The shortcut of residual nets without weights (He et al. 2016, arXiv 1512.03385, option A): every stride-th pixel of
// x [n,h,w,c] from the first, behind (out - c)/2 channels of zeros, rounded down, and before the others: [n, ceil(h/s),
// ceil(w/s), out]. x itself for out = c and stride 1. x fp32, bf16 or fp64; out >= c.
Var shortcut_a(const Var& x, int64_t out, const std::array<int64_t, 2>& stride);

}  // namespace bitgrad
