// The forward product of a linear layer, on packed operands in the layouts that the cheapest kernel reads.
#pragma once

#include "ops/product/operand.h"

namespace bitgrad::detail {

// y = x w^T (+ bias, fp32 or undefined) by the best kernel among the layouts available for w; x is packed into the
// layout that the kernel reads. y [rows of x, rows of w], with dense or strided rows: fp32, bf16, fp64, or int32 for
// operands without scales. An operand with several blocks of rows is produced and multiplied block by block, by the
// kernel chosen for the whole shape and therefore in its order of summation. row_alone: ProductModes::row_alone.
void forward_product(const Operand& x, const Tensor& w, const Tensor& bias, const Tensor& y, bool row_alone = false);
inline void forward_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            bool row_alone = false) {
  forward_product(MatrixOperand(x), w, bias, y, row_alone);
}

}  // namespace bitgrad::detail
