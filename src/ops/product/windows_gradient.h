// The two backward products of a convolution, each with its own mode. docs/numerics.md section 5, "Convolutions".
#pragma once

#include <optional>

#include "bitgrad/autograd/tape.h"
#include "ops/product/windows.h"

namespace bitgrad::detail {

// Inputs of one backward: gy [n,oh,ow,o], fp32, bf16 or fp64, dense.
struct ConvGradient {
  const ConvForm& form;
  Tensor gy;
  ProductMode mode = ProductMode::kFp32;
  std::optional<RandomStream> sr = {};  // int8: draws for rounding gy; nearest if not given
};

// Requirements of gx int8 in addition to those of linear: scales of w per tensor or output channel, and sums per pixel
// that fit in int32.
void check_conv_gx(ProductMode mode, const OperandForm& w, int64_t taps);
// gx[n,h,w,c]: each window's row of gy W is added to the pixels that the window read, in ascending order of windows.
void conv_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot);
// gw[o,k] = gy^T windows(x): blocks of 4032 windows, added in ascending order; int8 sums are integers, scaled once.
void conv_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot);
// Quantizes gy with one scale per image, after folding in w's scales of output channels. [samples, windows * outputs].
Tensor image_codes(const ConvGradient& g, const ScaleMap& w);

// Products of a convolution computed directly from the images, on CPUs with a unit for that (kernels/conv.h). Each
// function returns false without doing anything if there is no such unit, it does not pay off, or it does not support
// the operands.

// y [n,oh,ow,o], fp32 or int32, dense.
bool direct_forward(const ConvForm& form, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
// gx [n,h,w,c] fp32. Modes fp32 and bf16: gy is fp32; int8: codes [n*oh*ow, o] with one scale per image.
bool direct_gx(const ConvGradient& g, const Tensor& w, const Tensor& gx);
bool direct_gx_int8(const ConvForm& form, const Tensor& codes, const Tensor& scales, const Tensor& w, const Tensor& gx);
// gw [o,k] fp32; for int8 codes [n*oh*ow, o]: int32 sums.
bool direct_gw(const ConvGradient& g, const Tensor& x, const Tensor& gw);
bool direct_gw_int8(const ConvForm& form, const Tensor& codes, const Tensor& x, const Tensor& sums);

}  // namespace bitgrad::detail
