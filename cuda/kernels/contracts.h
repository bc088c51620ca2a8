// The contracts of bitgrad::kernels, by their short names inside bitgrad::cuda, and the launches that the table of CUDA
// has: name_cuda(...) for each line of kernel_table.inc, with the contract and parameters of line `name`.
#pragma once

#include "kernels/kernel_table.h"

namespace bitgrad::cuda {

using namespace kernels;

#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) result name##_cuda parameters;
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL

}  // namespace bitgrad::cuda
