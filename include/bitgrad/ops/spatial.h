// Ops on images [n,h,w,c] (NHWC): convolution, pooling, flatten, parameter-free shortcut. Numerics: docs/numerics.md
// section 4 and section 10, "Images". All throw Error on a wrong shape or dtype.
#pragma once

#include <array>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// Convolutions. Weights are matrices [o, kh*kw*c/groups] whose column (ky*kw +
// kx)*(c/groups) + i holds channel i of tap (ky, kx).
//
// Geometry of the windows. Lengths are in pixels, [rows, columns], at most 2^20.
struct Conv2dOptions {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, left, bottom, right; each below 2^20
  // Value of pixels outside the image: 0, or -1 or 1. The latter two are codes of kind sign (scaled like other codes;
  // without real offsets), or floats: constants without a gradient, which contribute to gw.
  int pad_value = 0;
  // Output channel j reads the c/groups input channels of group j / (o/groups). groups = c: depthwise.
  int64_t groups = 1;
};

// Returns [oh, ow] for an image [h, w]: floor((h + top + bottom - (kernel-1)*dilation - 1) / stride) + 1. Throws Error
// for options out of range and if no window fits.
std::array<int64_t, 2> conv2d_output(int64_t h, int64_t w, const Conv2dOptions& options);
// Returns the padding [top, left, bottom, right] of TensorFlow's "SAME" for this image, which gives ceil(size / stride)
// windows. If the total is odd, the extra pixel goes to the bottom and right. options.padding is ignored.
std::array<int64_t, 4> same_padding(int64_t h, int64_t w, const Conv2dOptions& options);

// y[n,oy,ox,j] = sum over taps (ky, kx) and channels i of x[n, oy*stride+ky*dilation-top, ..., i] * w[j, (ky,kx,i)] (+
// bias[j]); a cross-correlation. x [n,h,w,c] and w [o,k] have any pair of dtypes that linear accepts; y is fp32, bf16
// or fp64 as there. Scales of x: per tensor or channel(1). Pixels outside are exactly 0, even if x has no code for 0
// (kind sign, real offsets), unless pad_value says otherwise. Gradients are those of the dequantized values. gx int8:
// gy gets one scale per image, after w's scales per output channel are folded in; w per tensor or channel(0). gw int8:
// one scale per output channel. In `fast` mode, float sums may use any order (docs/numerics.md section 4). Throws Error
// like linear, for shapes that do not match, and for scales of x that differ within a window.
Var conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, const ProductModes& modes = {});
// Like integer_linear: y is int32 with scale sx * sw; x is scaled per tensor.
Var integer_conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options);
// Like linear_simulated.
Var conv2d_simulated(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, DType y = dtypes::fp32);

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
