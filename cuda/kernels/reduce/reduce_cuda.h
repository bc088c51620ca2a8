// The launches of family reduce: name_cuda(...) for each line of kernels.inc, with the contract and parameters of line
// `name` in kernel_table.inc, and the listed kernel.
#pragma once

#include <type_traits>

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

#define BITGRAD_CUDA_KERNEL(name) std::remove_pointer_t<decltype(KernelTable::name)> name##_cuda;
#include "cuda/kernels/reduce/kernels.inc"
#undef BITGRAD_CUDA_KERNEL

// Every rule and axis. Same contract as reduce().
void reduce_lanes_cuda(const ReduceArgs& args);

}  // namespace bitgrad::cuda
