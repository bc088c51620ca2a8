// Convolutions in which each output channel reads a single input channel, using the loops over channels in
// kernels/conv.h. Integer sums and formulas are those of one product per group; float sums have their own orders:
// docs/numerics.md sections 4 and 5, "Depthwise convolutions".
#pragma once

#include "ops/product/windows_gradient.h"

namespace bitgrad::detail {

// Whether every group is a single channel, and there are several groups.
bool is_depthwise(const ConvForm& form);
// Whether the loops support these operands: both fp64, or codes of at most 8 bits, fp32 and bf16 whose exact sums stay
// below 2^24. Otherwise products per group are used.
bool has_depthwise_forward(const Tensor& x, const Tensor& w, const ConvForm& form);
bool has_depthwise_gx(const ConvGradient& g, const Tensor& w);
bool has_depthwise_gw(const ConvGradient& g, const Tensor& x);

// As the forward of conv2d; rows() may be 0.
void depthwise_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y);
void depthwise_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot);
// Requires rows() > 0.
void depthwise_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot);

// While an instance lives, is_depthwise returns false on the calling thread, so that tests can compare with products
// per group.
class WithoutDepthwise {
 public:
  WithoutDepthwise();
  ~WithoutDepthwise();
  WithoutDepthwise(const WithoutDepthwise&) = delete;
  WithoutDepthwise& operator=(const WithoutDepthwise&) = delete;
};

}  // namespace bitgrad::detail
