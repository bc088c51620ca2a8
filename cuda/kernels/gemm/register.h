// The rows of family gemm for CUDA.
#pragma once

#include <span>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::cuda {

std::span<const GemmRow> cuda_gemm_rows();
// Adds them to gemm_rows(). Once.
void register_gemm();

}  // namespace bitgrad::cuda
