// GemmArgs as kernels of the device take them. Host side.
#pragma once

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

Operand operand_of(const GemmOperand& x);
Output output_of(const GemmArgs& args);
Levels levels_of(DType dtype);

// What an exact product may be written to on the device: as on the CPU, without fp64.
bool integer_output(const GemmArgs& args);

// One exact sum of codes of at most 8 bits (no groups), to an output that the device writes.
bool exact_sum(const GemmArgs& args);
// Sums over k of products of codes up to these magnitudes stay within int32.
bool fits_int32(const GemmArgs& args, int64_t most_a, int64_t most_b);
// What a bit of a plane counts in a code's number; a sign counts 2, less 1 for the code.
int32_t plane_weight(DType dtype, int plane);

// Magnitude of the largest code of an integer dtype of at most 8 bits.
int64_t largest_code(DType dtype);

}  // namespace bitgrad::cuda::gemm
