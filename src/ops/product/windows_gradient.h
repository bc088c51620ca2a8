// The two products of a convolution's backward, each in a mode of its own. docs/numerics.md section 5, "Convolutions".
#pragma once

#include <optional>

#include "bitgrad/autograd/tape.h"
#include "ops/product/windows.h"

namespace bitgrad::detail {

// Of one backward: gy [n,oh,ow,o], fp32, bf16 or fp64, dense.
struct ConvGradient {
  const ConvForm& form;
  Tensor gy;
  ProductMode mode = ProductMode::kFp32;
  std::optional<RandomStream> sr = {};  // int8: rounding of gy; none: nearest
};

// What gx int8 needs beside what linear's does: scales of w per tensor or output channel, and sums of a pixel that stay
// in int32.
void check_conv_gx(ProductMode mode, const OperandForm& w, int64_t taps);
// gx[n,h,w,c]: each window's row of gy W is added to the pixels that it read, in ascending order of windows.
void conv_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot);
// gw[o,k] = gy^T windows(x): blocks of 4032 windows, added in ascending order; int8 in integers, scaled once.
void conv_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot);
// gy quantized: a scale for each image, w's scales of output channels folded in before. [samples, windows * outputs].
Tensor image_codes(const ConvGradient& g, const ScaleMap& w);

}  // namespace bitgrad::detail
