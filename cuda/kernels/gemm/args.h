// Converts GemmArgs to the arguments of device kernels. Host side.
#pragma once

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/output.h"

namespace bitgrad::cuda::gemm {

Operand operand_of(const GemmOperand& x);
Output output_of(const GemmArgs& args);
Levels levels_of(DType dtype);

// Whether the device can store an exact product as c_dtype: same as the CPU, except fp64.
bool integer_output(const GemmArgs& args);

// Whether this is a single exact sum over codes of at most 8 bits (no groups), stored in an output the device supports.
bool exact_sum(const GemmArgs& args);
// Whether sums over k of products of codes of at most these magnitudes fit in int32.
bool fits_int32(const GemmArgs& args, int64_t most_a, int64_t most_b);
// Weight of a plane's bit in the code value. For signs it is 2; the value is 2 * bit - 1.
int32_t plane_weight(DType dtype, int plane);

// Largest magnitude of the codes of an integer dtype of at most 8 bits.
int64_t largest_code(DType dtype);

}  // namespace bitgrad::cuda::gemm
