// Exact products on devices other than the CPU: codes stored as [k, free], which the kernels read more slowly, are
// transposed to [free, k] first if the product gains more than that costs.
//
// If codes are quantized for such a product, they can be written in both orders from one read of the values (layout
// `transposed`): for a weight by requantize, for an activation by its quantizer. prefers_transposed returns, before
// codes exist, whether a product of this shape reads them that way; nn calls it when layouts are planned. For an
// activation that is saved only for gW, only the transposed codes are kept.
#pragma once

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::detail {

// Codes in layout transposed of a stored matrix [k, free], with scales in coordinates of the stored matrix.
kernels::GemmOperand from_transposed(const void* codes, DType dtype, int64_t k, const ScaleMap& scale);

// Whether codes stored as [k, free] can be transposed to [free, k]. Also called by CPU plans (blocks.cpp).
bool can_transpose(const kernels::GemmOperand& x);
// The operand after transposition, without data. Rows are aligned to 16 bytes, as required by the copy engines of
// devices.
kernels::GemmOperand transposed_form(const kernels::GemmOperand& x, int64_t k);

// Runs the product, transposing operands if that pays off. b_transposed: the codes of B in transposed order, or nullptr
// if not available.
void run_on_device(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed);

// Whether the current device would read B of an int8 backward product from layout transposed if available: A int8 [m,
// k], or [k, m] if a_k_major; B codes of dtype `b`, stored as [k, n].
bool prefers_transposed(DType b, int64_t m, int64_t n, int64_t k, bool a_k_major);

}  // namespace bitgrad::detail
