// Products of floats with codes by a product of floats: codes are expanded to the fp32 values that they stand for, bf16
// is widened. For mode fast, where such products would else run on a reference row.
#pragma once

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/gemm/library/cublaslt.h"

namespace bitgrad::cuda::gemm {

// A product of floats by its definition (bitgrad/kernels/gemm.h): one side codes of at most 8 bits in canonical rows,
// the other such codes or plain fp32 or bf16; C fp32, or bf16 that is overwritten and rounded to nearest. A scale that
// fold_b_scale asks for stays with B's values: one rounding of s q in place of one of s a.
bool expands(const kernels::GemmArgs& args);
// The work around `product`, which gets fp32 operands and C and says whether it could. False where it could not: then C
// is as it was.
bool run_expanded(const kernels::GemmArgs& args, bool (*product)(const LtProduct&));
// Nanoseconds of that work.
double expansion_cost(const kernels::GemmArgs& args);

}  // namespace bitgrad::cuda::gemm
