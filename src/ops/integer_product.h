// Products of integer codes that stay int32 with a scale: what integer_linear and integer_conv2d share.
// docs/numerics.md section 4, "Integer networks".
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Throws Error unless sums of k products of x and w stay in int32 and have a scale, one in all, a row of x or a row of
// w.
void check_integer_product(std::string_view where, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t k);
// The params of y: one scale, one per row of x, or one per row of w.
std::shared_ptr<const QuantParams> integer_product_params(const Tensor& x, const Tensor& w);
// rint(bias / scale), each in fp32, clamped to int32. A layer whose input is all zeros has sx = 2^-126: its bias is
// past int32 then, and training goes on.
Tensor rounded_bias(std::string_view where, const Tensor& bias, const QuantParams& params);
// y[.., o] += bias[o], both int32, clamped.
void add_integer_bias(const Tensor& y, const Tensor& bias);

}  // namespace bitgrad::detail
