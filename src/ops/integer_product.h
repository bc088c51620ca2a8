// Products of integer codes that stay int32 with a scale. Shared by integer_linear and integer_conv2d. docs/numerics.md
// section 4, "Integer networks".
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Throws Error unless sums of k products of x and w fit in int32 and have a single scale, one per row of x, or one per
// row of w.
void check_integer_product(std::string_view where, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t k);
// Params of y: a single scale, one per row of x, or one per row of w.
std::shared_ptr<const QuantParams> integer_product_params(const Tensor& x, const Tensor& w);
// rint(bias / scale), each operation in fp32, clamped to int32. For a layer whose input is all zeros, sx = 2^-126 and
// the bias exceeds int32; it is clamped so that training continues.
Tensor rounded_bias(std::string_view where, const Tensor& bias, const QuantParams& params);
// y[.., o] += bias[o], both int32, clamped.
void add_integer_bias(const Tensor& y, const Tensor& bias);

}  // namespace bitgrad::detail
