// BITGRAD_HD marks functions that device kernels call too. It expands to nothing outside CUDA.
#pragma once

#if defined(__CUDACC__)
#define BITGRAD_HD __host__ __device__
#else
#define BITGRAD_HD
#endif
