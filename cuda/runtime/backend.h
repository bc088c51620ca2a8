// The DeviceBackend of CUDA devices: memory, copies and the capabilities that kernels may rely on.
#pragma once

#include "bitgrad/base/device.h"
#include "cuda/runtime/pool.h"

namespace bitgrad::cuda {

DeviceBackend& cuda_backend();
// Adds isa:: bits that every CUDA device has from now on, for example for a library found at run time.
void add_capability(IsaMask mask);
// Adds a line to DeviceBackend::libraries(). `describe` is called each time.
void add_library(std::string (*describe)());

}  // namespace bitgrad::cuda
