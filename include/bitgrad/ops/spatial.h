// Ops on images [n,h,w,c] (NHWC): pooling, flatten, parameter-free shortcut. Numerics: docs/numerics.md section 10,
// "Images". All throw Error on a wrong shape or dtype.
#pragma once

#include <array>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// Collapses all axes but the first: y [n, ...], for an image [n, h*w*c] with pixels in row-major order. Any dtype,
// dense. Codes whose rows are whole words are not copied, others are repacked; their scales must be per tensor (any
// granularity if a sample is one row). The gradient is reshaped accordingly.
Var flatten(const Var& x);

// Geometry of pooling windows. Lengths are in pixels, [rows, columns].
struct PoolOptions {
  std::array<int64_t, 2> size{2, 2}, stride{2, 2};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, left, bottom, right; each smaller than the window
};
// Returns [oh, ow] for an image [h, w], as conv2d_output. Throws Error, prefixed by `where`, for options out of range,
// if no window fits, and if a window lies entirely outside the image.
std::array<int64_t, 2> pool_output(std::string_view where, int64_t h, int64_t w, const PoolOptions& options);

// y[n,oy,ox,c] = maximum of x over the window, ignoring pixels outside. x [n,h,w,c]: fp32, bf16, fp64, or codes of kind
// int, uint or sign of at most 8 bits. Codes are compared as such, and their scales (positive; per tensor or
// channel(1)) are passed on; for 1-bit codes the maximum is the OR of words. y has x's dtype. NaN is larger than any
// other value. Backward: the gradient goes to the first maximum in row-major order, also in case of ties (as PyTorch's
// max_pool2d; among NaNs to the last). Keeps one byte per element of y (4 for windows of more than 256 pixels), or for
// 1-bit codes the codes of x.
Var max_pool(const Var& x, const PoolOptions& options);
// y = (sum of the window in row-major order) * (1/count), where count excludes padding (PyTorch's avg_pool2d with
// count_include_pad=False). x [n,h,w,c] fp32, fp64 or bf16 (computed in fp32, rounded once); y in x's dtype. Keeps
// nothing for backward.
Var avg_pool(const Var& x, const PoolOptions& options);
// avg_pool over the whole image: [n,h,w,c] -> [n,c].
Var global_avg_pool(const Var& x);

// The parameter-free shortcut of residual networks (He et al. 2016, arXiv 1512.03385, option A): every stride-th pixel
// of x [n,h,w,c], starting at the first, with floor((out - c)/2) zero channels before its channels and the remaining
// ones after them: [n, ceil(h/s), ceil(w/s), out]. Returns x itself for out = c and stride 1. x fp32, bf16 or fp64; out
// >= c.
Var shortcut_a(const Var& x, int64_t out, const std::array<int64_t, 2>& stride);

}  // namespace bitgrad
