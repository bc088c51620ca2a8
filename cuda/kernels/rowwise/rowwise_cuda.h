// The launches of family rowwise: name_cuda(...) for each line of kernels.inc, with the contract and parameters of line
// `name` of device_kernels.inc.
#pragma once

#include <type_traits>

#include "bitgrad/kernels/device_kernels.h"

namespace bitgrad::cuda {

#define BITGRAD_CUDA_KERNEL(name) std::remove_pointer_t<decltype(DeviceKernels::name)> name##_cuda;
#include "cuda/kernels/rowwise/kernels.inc"
#undef BITGRAD_CUDA_KERNEL

}  // namespace bitgrad::cuda
