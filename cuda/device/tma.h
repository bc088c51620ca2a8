// Tiles copied from global into shared memory by the tensor memory accelerator (TMA), complete on an mbarrier.
//
// A TensorMap (runtime/tensor_map.h) describes a matrix of bytes [rows, columns] and the box that one copy moves; what
// lies outside the matrix arrives as zeros and counts as bytes all the same. The box's rows are 128 bytes and land
// swizzled (fragments.h).
#pragma once

#include <cstdint>

#include "cuda/device/barrier.h"
#include "cuda/runtime/tensor_map.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/tma.h"
#endif

// Not for host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

BITGRAD_DEVICE inline void prefetch_tensor_map(const TensorMap* map) {
#if BITGRAD_SM90A
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#else
  (void)map;
#endif
}

// The box whose first byte is (row, column) goes to `to` (a multiple of 1024 in shared memory). One thread.
BITGRAD_DEVICE inline void tma_load(void* to, const TensorMap* map, Barrier* barrier, int column, int row) {
#if BITGRAD_SM90A
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_load(to, map, barrier, column, row, 0);
#endif
}

// The same into the shared memory of every block of the cluster whose bit in `blocks` is set, at the same place, with
// its bytes counted on each block's own barrier.
BITGRAD_DEVICE inline void tma_load_multicast(void* to, const TensorMap* map, Barrier* barrier, int column, int row,
                                              uint16_t blocks) {
#if BITGRAD_SM90A
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "h"(blocks), "r"(column), "r"(row)
      : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_load(to, map, barrier, column, row, blocks);
#endif
}

// `bytes` consecutive bytes (a multiple of 16, both addresses too). One thread.
BITGRAD_DEVICE inline void bulk_load(void* to, const void* from, uint32_t bytes, Barrier* barrier) {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::bulk_load(to, from, bytes, barrier);
#endif
}

}  // namespace bitgrad::cuda

#endif
