// Where a product goes: as a whole, or in blocks of rows that a fused update takes one by one.
#pragma once

#include "bitgrad/autograd/tape.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Runs `args` (operands canonical) by the cheapest kernel. Exact sums: B is packed or transposed first where that is
// cheaper. b_transposed: B's codes in layout transposed too (transposed.h), for exact products on a device; nullptr:
// there are none.
void run_product(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed = nullptr);

// The same for a piece of a longer sum, in whatever order is legal: B's bits are transposed first also for floats, where
// that is cheaper.
void run_piece(kernels::GemmArgs& args);

// C = A B into the slot's gradient, A and B of `args` being set: whole, or in blocks of rows (tape.h, GradRows; not for
// a batch). Rows are A's free index. Same bits both ways: floats are summed in the order of the kernel that runs the
// whole product.
void product_into(kernels::GemmArgs& args, GradSlot& slot, const kernels::GemmOperand* b_transposed = nullptr);

// A product whose rows of C are made and used a block at a time: by the kernel, and so in the order, of the whole
// product, B packed once where that pays. Calls of run may come from several threads.
class RowBlocks {
 public:
  // `whole`: its m is that of all rows, its A a form. block: rows of a call, or fewer.
  RowBlocks(const kernels::GemmArgs& whole, int64_t block);
  // A, C, m, row_minus, and what else belongs to rows, are those of `part`.
  void run(kernels::GemmArgs part) const;

 private:
  const kernels::GemmKernel* kernel_;
  kernels::GemmOperand b_;
  Tensor packed_;
};

}  // namespace bitgrad::detail
