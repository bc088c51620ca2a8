// The vector intrinsics of x86-64. The AVX-512 headers of g++ 12 deliberately read an uninitialized vector.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define BITGRAD_INLINE __attribute__((always_inline)) static inline
