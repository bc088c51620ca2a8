// Products of floats with codes through a float product: codes are dequantized to fp32, bf16 is widened. For mode fast,
// where such products would otherwise run on a reference kernel.
#pragma once

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/gemm/library/cublaslt.h"

namespace bitgrad::cuda::gemm {

// Whether run_expanded supports `args`: a float product by definition (bitgrad/kernels/gemm.h) in which one side is
// codes of at most 8 bits in canonical rows, and the other is such codes or plain fp32 or bf16. C is fp32, or bf16 that
// is overwritten and rounded to nearest. A scale for which fold_b_scale is set stays with B's values, so s q is rounded
// once instead of s a.
bool expands(const kernels::GemmArgs& args);
// Expands the operands and calls `product` with fp32 operands and C. `product` returns whether it ran. If it did not,
// returns false and leaves C unchanged.
bool run_expanded(const kernels::GemmArgs& args, bool (*product)(const LtProduct&));
// Nanoseconds of the expansion.
double expansion_cost(const kernels::GemmArgs& args);

}  // namespace bitgrad::cuda::gemm
