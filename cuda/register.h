// How the CUDA backend comes into being: device, rows of kernels, table of kernels.
#pragma once

#include "bitgrad/kernels/device_kernels.h"

namespace bitgrad::cuda {

// Called by base/device.cpp when a CUDA device is first asked for. Without a driver the backend has no devices.
void register_cuda();
// The kernels without rows (device_kernels.inc): families fill their lines in register_<family>().
DeviceKernels& device_kernel_table();

}  // namespace bitgrad::cuda
