// The launches of family conv: name_cuda(...) for each line of kernels.inc, with the contract and parameters of line
// `name` in kernel_table.inc.
#pragma once

#include <type_traits>

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

#define BITGRAD_CUDA_KERNEL(name) std::remove_pointer_t<decltype(KernelTable::name)> name##_cuda;
#include "cuda/kernels/conv/kernels.inc"
#undef BITGRAD_CUDA_KERNEL

}  // namespace bitgrad::cuda
