// Convolutions. Images are [n,h,w,c] (NHWC); weights are matrices [o, kh*kw*c/groups] whose column (ky*kw +
// kx)*(c/groups) + i holds channel i of tap (ky, kx). docs/numerics.md section 4.
#pragma once

#include <array>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

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

}  // namespace bitgrad
