// Convolutions. Images are [n,h,w,c] (NHWC), weights matrices [o, kh*kw*c/groups] whose column (ky*kw + kx)*(c/groups)
// + i is channel i of tap (ky, kx). docs/numerics.md section 4.
#pragma once

#include <array>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// How windows lie on an image. Lengths are pixels, [rows, columns], at most 2^20.
struct Conv2dOptions {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, left, bottom, right; each smaller than 2^20
  // A pixel outside: the value 0, or -1 or 1. These are codes of kind sign (scaled as its codes; without real offsets),
  // or floats: constants without a gradient, which count in gw.
  int pad_value = 0;
  // Output channel j reads the c/groups input channels of group j / (o/groups). groups = c: depthwise.
  int64_t groups = 1;
};

// [oh, ow] of an image [h, w]: (h + top + bottom - (kernel-1)*dilation - 1) / stride + 1, rounded down. Throws Error
// for options out of range, and where no window fits.
std::array<int64_t, 2> conv2d_output(int64_t h, int64_t w, const Conv2dOptions& options);
// The padding [top, left, bottom, right] of TensorFlow's "SAME" for this image: as many windows as ceil(size / stride);
// of an odd number of pixels the larger half lies at the bottom and on the right. options.padding is not read.
std::array<int64_t, 4> same_padding(int64_t h, int64_t w, const Conv2dOptions& options);

// y[n,oy,ox,j] = sum over taps (ky, kx) and channels i of x[n, oy*stride+ky*dilation-top, ..., i] * w[j, (ky,kx,i)]
// (+ bias[j]); a cross-correlation. x [n,h,w,c] and w [o,k]: any pair that linear takes; y fp32,
// bf16 or fp64 as there. Scales of x: per tensor or channel(1). A pixel outside is exactly 0, also where no code of x
// is (kind sign, real offsets), unless pad_value says otherwise. Gradients are those of the values; gx int8: gy
// gets one scale per image, after w's scales per output channel are folded in; w per tensor or channel(0). gw int8: one
// scale per output channel. In `fast`, float sums may have a free order (docs/numerics.md section 4). Throws Error as
// linear, for shapes that do not fit, and for scales of x that differ within a window.
Var conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, const ProductModes& modes = {});
// As integer_linear: y int32 with scale sx * sw; x per tensor.
Var integer_conv2d(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options);
// As linear_simulated.
Var conv2d_simulated(const Var& x, const Var& w, const Var& bias, const Conv2dOptions& options, DType y = dtypes::fp32);

}  // namespace bitgrad
