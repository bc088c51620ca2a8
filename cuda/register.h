// How the CUDA backend comes into being: device, rows of kernels, table of kernels.
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad {

// Puts the CUDA backend and its kernels in place, once. Without a driver the backend has no devices. A build with CUDA
// runs it when a CUDA device is first asked for (register_backend_installer).
void install_cuda();

namespace cuda {

// The kernels without rows (kernel_table.inc): families fill their lines in register_<family>().
KernelTable& cuda_kernel_table();

}  // namespace cuda
}  // namespace bitgrad
