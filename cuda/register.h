// Installs the CUDA backend: device, kernels and maps.
#pragma once

namespace bitgrad {

// Registers the CUDA backend and its kernels, once. Without a driver the backend has no devices. In a build with CUDA
// this runs when a CUDA device is first requested (register_backend_installer).
void install_cuda();

}  // namespace bitgrad
