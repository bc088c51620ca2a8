// Where a product goes: as a whole, or in blocks of rows that a fused update takes one by one.
#pragma once

#include "bitgrad/autograd/tape.h"
#include "bitgrad/kernels/gemm.h"

namespace bitgrad::detail {

// Runs `args`, operands canonical: by the cheapest kernel, B packed (or transposed) for it first where sums are exact
// and that pays. b_transposed: B's codes in the other order too (order.h), for exact products on a device; nullptr:
// they are not there.
void run_product(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed = nullptr);

// C = A B goes to where the gradient lives, A and B of `args` being set: as a whole, or in blocks of rows (tape.h,
// GradRows; no batch). A's free index is the row. Both ways give the same bits: floats are summed in one order, that of
// the kernel that runs the whole product.
void product_into(kernels::GemmArgs& args, GradSlot& slot, const kernels::GemmOperand* b_transposed = nullptr);

}  // namespace bitgrad::detail
