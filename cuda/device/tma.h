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

// The box at `from` (a multiple of 1024 in shared memory) goes to the matrix; what lies outside of it is cut off. One
// thread, after tma_store_fence of all who wrote the box and a barrier. Copies of a thread end in groups, as committed.
BITGRAD_DEVICE inline void tma_store(const TensorMap* map, const void* from, int column, int row) {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store(map, from, column, row);
#endif
}
// Writes to shared memory by this thread become visible to copies.
BITGRAD_DEVICE inline void tma_store_fence() {
#if BITGRAD_SM90A
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
BITGRAD_DEVICE inline void tma_store_commit() {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store_commit();
#endif
}
// At most kPending of the caller's latest groups still read shared memory.
template <int kPending>
BITGRAD_DEVICE inline void tma_store_wait_read() {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store_wait(kPending);
#endif
}
// All of them have written. Before the block ends.
BITGRAD_DEVICE inline void tma_store_wait_all() {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store_wait(0);
#endif
}

}  // namespace bitgrad::cuda

#endif
