// Stores warp fragments to shared memory, and packs pairs of fp32 as bf16.
#pragma once

#include <cstdint>

#include "cuda/device/barrier.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/mma.h"
#endif

// Hidden from host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

// Two floats rounded to nearest even, `first` in the low half. NaN becomes 0x7FFF.
BITGRAD_DEVICE inline uint32_t pack_bf16(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#elif defined(BITGRAD_CUDA_EMULATED)
  return emulation::pack_bf16(first, second);
#else
  return first < second;
#endif
}

// Stores four 8 x 8 matrices of 16-bit elements. Word i of lane l contains elements 2 (l % 4) and 2 (l % 4) + 1 of row
// l / 4 of matrix i. In lane 8 i + r, `row` points to row r of matrix i, aligned to 16 bytes. kTransposed transposes
// each matrix on the way. PTX ISA 9.0, stmatrix.
template <bool kTransposed>
BITGRAD_DEVICE inline void store_matrices(void* row, const uint32_t (&words)[4]) {
#if BITGRAD_SM90A
  if constexpr (kTransposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::store_matrices(row, words, kTransposed);
#endif
}

}  // namespace bitgrad::cuda

#endif
