// Destination of a product: a whole tensor, or blocks of rows consumed one by one by a fused update.
#pragma once

#include "bitgrad/autograd/tape.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Runs `args` (operands canonical) with the cheapest kernel. For exact sums, B is packed or transposed first if that is
// cheaper. b_transposed: the codes of B in layout transposed (transposed.h), for exact products on a device; nullptr if
// not available.
void run_product(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed = nullptr);

// The same for a piece of a longer sum, in any legal order: 1-bit codes of B are also transposed first for float sums
// if that is cheaper.
void run_piece(kernels::GemmArgs& args);

// C = A B into the slot's gradient, with A and B of `args` already set: as a whole, or in blocks of rows (tape.h,
// GradRows; not for a batch). Rows are the free index of A. The bits are the same either way: floats are summed in the
// order of the kernel that runs the whole product.
void product_into(kernels::GemmArgs& args, GradSlot& slot, const kernels::GemmOperand* b_transposed = nullptr);

// A product whose rows of C are computed and consumed one block at a time, by the kernel of the whole product and
// therefore in its order of summation. B is packed once if that pays off. run may be called from several threads
// concurrently.
class RowBlocks {
 public:
  // `whole`: m covers all rows, A is a form without data. block: most rows per call.
  RowBlocks(const kernels::GemmArgs& whole, int64_t block);
  // A, C, m, row_minus and everything else that depends on the rows comes from `part`.
  void run(kernels::GemmArgs part) const;

 private:
  const kernels::GemmKernel* kernel_;
  kernels::GemmOperand b_;
  Tensor packed_;
};

}  // namespace bitgrad::detail
