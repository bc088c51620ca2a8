// The DeviceBackend of CUDA devices: memory, copies, what the kernels may use.
#pragma once

#include "bitgrad/base/device.h"
#include "cuda/runtime/pool.h"

namespace bitgrad::cuda {

DeviceBackend& cuda_backend();
// Bits of isa:: that every CUDA device has from now on (a library that was found at run time).
void add_capability(IsaMask mask);
// What DeviceBackend::libraries() says of a library; `describe` is asked each time.
void add_library(std::string (*describe)());
// From one device to another, after the work that both current streams hold now and before what they get later. Does
// not wait. Acts on devices, whatever the current one is.
void copy_between(Device to_device, void* to, Device from_device, const void* from, int64_t bytes);

}  // namespace bitgrad::cuda
