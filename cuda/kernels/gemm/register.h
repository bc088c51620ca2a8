// The kernels of family gemm for CUDA.
#pragma once

#include <span>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

std::span<const GemmKernel> cuda_gemm_kernels();
// Adds them to gemm_kernels(). Call once.
void register_gemm();

}  // namespace bitgrad::cuda
