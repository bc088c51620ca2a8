// NVTX, where the CUDA Toolkit of the build has its header.
#pragma once

namespace bitgrad::cuda {

// Sets the profiler (bitgrad/base/profile.h) if BITGRAD_NVTX asks for it.
void install_nvtx();

}  // namespace bitgrad::cuda
