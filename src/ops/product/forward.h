// The forward product of a linear layer: on packed operands, in the layouts that the cheapest kernel reads.
#pragma once

#include "ops/product/operand.h"

namespace bitgrad::detail {

// y = x w^T (+ bias, which is fp32 or undefined) by the best kernel among the layouts that w has; x is packed into the
// layout that the kernel wants. y [rows of x, rows of w], its rows dense or a stride apart: fp32, bf16, fp64, or int32
// of operands without scales. An operand of several blocks of rows is made and multiplied block by block, by the kernel
// (and so in the order of summation) of the whole shape.
// row_alone: ProductModes::row_alone.
void forward_product(const Operand& x, const Tensor& w, const Tensor& bias, const Tensor& y, bool row_alone = false);
inline void forward_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            bool row_alone = false) {
  forward_product(MatrixOperand(x), w, bias, y, row_alone);
}

}  // namespace bitgrad::detail
