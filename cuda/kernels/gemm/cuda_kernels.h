// Declares the functions of every kernel in kernels.inc: NAME_supports, NAME_cost and NAME.
#pragma once

#include <span>

#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

std::span<const GemmKernel> cuda_gemm_kernels();

namespace gemm_impl {

#define BITGRAD_CUDA_GEMM_KERNEL(name, ...) \
  bool name##_supports(const GemmArgs&);    \
  double name##_cost(const GemmArgs&);      \
  void name(const GemmArgs&);
#include "cuda/kernels/gemm/kernels.inc"
#undef BITGRAD_CUDA_GEMM_KERNEL

}  // namespace gemm_impl
}  // namespace bitgrad::cuda
