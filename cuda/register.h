// Installs the CUDA backend: device, kernel lists and KernelTable.
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad {

// Registers the CUDA backend and its kernels, once. Without a driver the backend has no devices. In a build with CUDA
// this runs when a CUDA device is first requested (register_backend_installer).
void install_cuda();

namespace cuda {

// The KernelTable of CUDA (kernel_table.inc). Each register_<family>() sets its own entries.
KernelTable& cuda_kernel_table();

}  // namespace cuda
}  // namespace bitgrad
