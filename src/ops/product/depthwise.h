// Convolutions whose output channels read one input channel each, by the loops over channels of kernels/depthwise.h.
// The same integer sums and formulas as a product a group, and orders of float sums of their own: docs/numerics.md
// sections 4 and 5, "Depthwise convolutions".
#pragma once

#include "ops/product/windows_gradient.h"

namespace bitgrad::detail {

// Every group is one channel, and there are several.
bool is_depthwise(const ConvForm& form);
// Whether the loops serve these operands: fp64 both, or codes of at most 8 bits, fp32 and bf16, whose exact sums stay
// below 2^24. Others are products of groups.
bool has_depthwise_forward(const Tensor& x, const Tensor& w, const ConvForm& form);
bool has_depthwise_gx(const ConvGradient& g, const Tensor& w);
bool has_depthwise_gw(const ConvGradient& g, const Tensor& x);

// As the forward of conv2d; rows() may be 0.
void depthwise_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y);
void depthwise_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot);
// rows() > 0.
void depthwise_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot);

// False while it lives: is_depthwise says no, so that tests can compare with products of groups. Of the calling thread.
class WithoutDepthwise {
 public:
  WithoutDepthwise();
  ~WithoutDepthwise();
  WithoutDepthwise(const WithoutDepthwise&) = delete;
  WithoutDepthwise& operator=(const WithoutDepthwise&) = delete;
};

}  // namespace bitgrad::detail
