// Synchronization between the threads of a block or a cluster: mbarriers in shared memory, named barriers, cluster
// barriers, and the register split between warpgroups. PTX on sm_90a; elsewhere the emulation supplies the bodies.
//
// An mbarrier counts arrivals and bytes of asynchronous copies; its phase ends when both counts are complete. Phases
// alternate in parity, starting with 0: barrier_wait(b, parity) returns once the phase of that parity has ended. The
// first wait for "this stage is empty" therefore passes parity 1 and returns immediately.
//
// Arrivals release and waits acquire at block scope, even if the barrier belongs to another block. That is enough: the
// data handed over moves through the async proxy, or is read and written by the block alone. At cluster scope an
// arrival would fence all GPU memory (MEMBAR.ALL.GPU) and a wait would invalidate the L1 cache (CCTL.IVALL).
#pragma once

#include <cstdint>

#include "cuda/device/builtins.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/barrier.h"
#endif
// Set for sm_90a only. On other architectures the functions below are empty and no registered kernel calls them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BITGRAD_SM90A 1
#else
#define BITGRAD_SM90A 0
#endif

// Hidden from host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

using Barrier = uint64_t;

// The address of p within the block's shared memory window, in bytes, as descriptors and PTX expect it.
BITGRAD_DEVICE inline uint32_t shared_address(const void* p) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
#elif defined(BITGRAD_CUDA_EMULATED)
  return emulation::shared_address(p);
#else
  return p != nullptr;
#endif
}

// Called by one thread before any thread uses the barrier, followed by barrier_fence_init and a barrier across all
// users.
BITGRAD_DEVICE inline void barrier_init(Barrier* barrier, uint32_t arrivals) {
#if BITGRAD_SM90A
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::barrier_init(barrier, arrivals);
#endif
}
BITGRAD_DEVICE inline void barrier_fence_init() {
#if BITGRAD_SM90A
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// One arrival that also adds `bytes` to the copies the phase waits for.
BITGRAD_DEVICE inline void barrier_arrive_expect(Barrier* barrier, uint32_t bytes) {
#if BITGRAD_SM90A
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::barrier_arrive_expect(barrier, bytes);
#endif
}
// One arrival.
BITGRAD_DEVICE inline void barrier_arrive(Barrier* barrier) {
#if BITGRAD_SM90A
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::barrier_arrive_expect(barrier, 0);
#endif
}
// One arrival at the barrier at the same shared memory offset in block `rank` of the cluster.
BITGRAD_DEVICE inline void barrier_arrive_at(Barrier* barrier, uint32_t rank) {
#if BITGRAD_SM90A
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::barrier_arrive_at(barrier, rank);
#endif
}
BITGRAD_DEVICE inline void barrier_wait(Barrier* barrier, uint32_t parity) {
#if BITGRAD_SM90A
  asm volatile(
      "{\n .reg .pred done;\nagain:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::barrier_wait(barrier, parity);
#endif
}

// Syncs `threads` threads of the block, in whole warps, on barrier `id` (1 .. 15; __syncthreads uses 0).
BITGRAD_DEVICE inline void named_barrier_sync(int id, int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::named_barrier(id, threads);
#endif
}

// The block's rank in its cluster.
BITGRAD_DEVICE inline uint32_t cluster_rank() {
#if BITGRAD_SM90A
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#elif defined(BITGRAD_CUDA_EMULATED)
  return static_cast<uint32_t>(emulation::cluster_rank());
#else
  return 0;
#endif
}
// Syncs all threads of all blocks of the cluster.
BITGRAD_DEVICE inline void cluster_sync() {
#if BITGRAD_SM90A
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::cluster_arrive();
  emulation::cluster_wait();
#endif
}

// Sets the registers per thread of the caller's warpgroup, a multiple of 8. All warps of the warpgroup must execute it.
template <int kRegisters>
BITGRAD_DEVICE inline void decrease_registers() {
#if BITGRAD_SM90A
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
BITGRAD_DEVICE inline void increase_registers() {
#if BITGRAD_SM90A
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace bitgrad::cuda

#endif
