// Tile copies by the tensor memory accelerator (TMA): global to shared memory, completing on an mbarrier, and back.
//
// A TensorMap (runtime/tensor_map.h) describes a matrix of bytes [rows, columns] and the box that one copy moves. Bytes
// of the box outside the matrix are filled with zeros and still count toward the barrier's byte count. Rows of the box
// are 128 bytes and arrive swizzled (fragments.h).
#pragma once

#include <cstdint>

#include "cuda/device/barrier.h"
#include "cuda/runtime/tensor_map.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/tma.h"
#endif

// Hidden from host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

BITGRAD_DEVICE inline void prefetch_tensor_map(const TensorMap* map) {
#if BITGRAD_SM90A
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#else
  (void)map;
#endif
}

// Loads the box that starts at (row, column) into `to`, a multiple of 1024 in shared memory. Called by one thread.
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

// Same, into the shared memory of every cluster block whose bit is set in `blocks`, at the same offset. Each block's
// own barrier counts the bytes.
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

// Copies `bytes` contiguous bytes; `bytes` and both addresses are multiples of 16. Called by one thread.
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

// Stores the box at `from`, a multiple of 1024 in shared memory, to the matrix, clipped to its rows and to its columns
// rounded up to 16 bytes (seen on an H100, whatever the type of the map's elements). Called by one
// thread, after every thread that wrote the box has run tma_store_fence and passed a barrier. A thread's stores
// complete in the groups in which they were committed.
BITGRAD_DEVICE inline void tma_store(const TensorMap* map, const void* from, int column, int row) {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store(map, from, column, row);
#endif
}
// Makes this thread's writes to shared memory visible to TMA copies.
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
// Waits until at most the caller's kPending latest groups still read shared memory.
template <int kPending>
BITGRAD_DEVICE inline void tma_store_wait_read() {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store_wait(kPending);
#endif
}
// Waits until all of the caller's stores are complete. Required before the block exits.
BITGRAD_DEVICE inline void tma_store_wait_all() {
#if BITGRAD_SM90A
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::tma_store_wait(0);
#endif
}

}  // namespace bitgrad::cuda

#endif
