// Exact products on a device that is not the CPU: codes stored [k, free], which its kernels read the slower way, are
// transposed to [free, k] first where the product gains more than that costs.
//
// Where codes are quantized for such a product they can be written in both orders from one read of the values (layout
// `transposed`): a weight's by requantize, an activation's by its quantizer. prefers_transposed returns, before there
// are codes, whether the product of this shape reads them so; nn calls it when layouts are planned. Of an activation
// that is saved for gW alone the transposed codes are all that is kept.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::detail {

// Codes of a stored matrix [k, free] in layout transposed, with scales in coordinates of the stored matrix.
kernels::GemmOperand from_transposed(const void* codes, DType dtype, int64_t k, const ScaleMap& scale);

// Whether codes stored [k, free] can be transposed to [free, k]. CPU plans (blocks.cpp) call it too.
bool can_transpose(const kernels::GemmOperand& x);
// The operand as it is once it is transposed, its data not there yet. Rows on 16 bytes, as the copy engines of devices
// want them.
kernels::GemmOperand transposed_form(const kernels::GemmOperand& x, int64_t k);

// Runs the product, operands transposed where that pays. b_transposed: B's codes in the other order, where they are
// there; else nullptr.
void run_on_device(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed);

// Whether the current device would read B of an int8 backward product from layout transposed if it were there: A int8
// [m, k], or [k, m] where a_k_major, B codes of this dtype, stored [k, n].
bool prefers_transposed(DType b, int64_t m, int64_t n, int64_t k, bool a_k_major);

}  // namespace bitgrad::detail
