// The CUDA definitions that kernel sources need, for both compilers: nvcc, and g++ with BITGRAD_CUDA_EMULATED, where
// tests/emulation/cuda/ implements the builtins. Host sources that only launch kernels may include it too.
//   BITGRAD_GLOBAL void name(Args args)     a kernel
//   BITGRAD_DEVICE inline int helper(int)   a device function
//   T* dynamic_shared<T>()                  the dynamic shared memory of the block, aligned to 1024 bytes
// Never use `extern __shared__`: two kernels in one file could not use different types, and the emulation has no such
// symbol.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define BITGRAD_GLOBAL __global__
#define BITGRAD_GRID_CONSTANT __grid_constant__
#define BITGRAD_DEVICE __device__

namespace bitgrad::cuda {
extern __shared__ __align__(1024) unsigned char g_dynamic_shared[];
template <typename T>
__device__ inline T* dynamic_shared() {
  return reinterpret_cast<T*>(g_dynamic_shared);
}
}  // namespace bitgrad::cuda

#else

#define BITGRAD_GLOBAL
#define BITGRAD_GRID_CONSTANT
#define BITGRAD_DEVICE

// Host sources of the real backend use only the declarations, so that they can include kernel headers.
#include "emulation/cuda/builtins.h"

#endif

// BITGRAD_UNROLL before a loop lets the arrays it indexes stay in registers. BITGRAD_NO_UNROLL is for loops with a
// large body that rarely run.
#if defined(__CUDACC__)
#define BITGRAD_UNROLL _Pragma("unroll")
#define BITGRAD_NO_UNROLL _Pragma("unroll 1")
#else
#define BITGRAD_UNROLL
#define BITGRAD_NO_UNROLL
#endif
