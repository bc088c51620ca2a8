// Products of a convolution computed directly from the images, on CPUs with a unit for that (kernels/conv.h). Each
// function returns false without doing anything if there is no such unit, it does not pay off, or it does not support
// the operands.
#pragma once

#include "ops/product/windows_gradient.h"

namespace bitgrad::detail {

// y [n,oh,ow,o], fp32 or int32, dense.
bool direct_forward(const ConvForm& form, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y);
// gx [n,h,w,c] fp32. Modes fp32 and bf16: gy is fp32; int8: codes [n*oh*ow, o] with one scale per image.
bool direct_gx(const ConvGradient& g, const Tensor& w, const Tensor& gx);
bool direct_gx_int8(const ConvForm& form, const Tensor& codes, const Tensor& scales, const Tensor& w, const Tensor& gx);
// gw [o,k] fp32; for int8 codes [n*oh*ow, o]: int32 sums.
bool direct_gw(const ConvGradient& g, const Tensor& x, const Tensor& gw);
bool direct_gw_int8(const ConvForm& form, const Tensor& codes, const Tensor& x, const Tensor& sums);

}  // namespace bitgrad::detail
