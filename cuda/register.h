// Installs the CUDA backend: device, lists of kernels, KernelTable.
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad {

// Puts the CUDA backend and its kernels in place, once. Without a driver the backend has no devices. A build with CUDA
// runs it when a CUDA device is first asked for (register_backend_installer).
void install_cuda();

namespace cuda {

// The KernelTable of CUDA (kernel_table.inc): each register_<family>() sets its entries.
KernelTable& cuda_kernel_table();

}  // namespace cuda
}  // namespace bitgrad
