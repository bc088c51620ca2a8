// BITGRAD_HD: a function that kernels of a device call too. Plain C++ elsewhere.
#pragma once

#if defined(__CUDACC__)
#define BITGRAD_HD __host__ __device__
#else
#define BITGRAD_HD
#endif
