// Waiting between the threads of a block or a cluster: mbarriers in shared memory, named barriers, cluster barriers,
// and the split of registers between warpgroups. PTX on sm_90, the emulation's bodies elsewhere.
//
// An mbarrier counts arrivals and bytes of asynchronous copies; when both are complete its phase ends. Phases alternate
// in parity, the first is 0: barrier_wait(b, parity) returns once the phase of that parity has ended, so the first wait
// for "a stage was emptied" asks for parity 1 and returns at once.
//
// Arrivals release and waits acquire within the block, also where the barrier is another block's: what is handed over
// moves by the asynchronous proxy, or is read and written by the block alone. At the scope of the cluster an arrival
// would be a fence of all memory of the GPU (MEMBAR.ALL.GPU) and a wait would drop the L1 cache (CCTL.IVALL).
#pragma once

#include <cstdint>

#include "cuda/device/builtins.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/barrier.h"
#endif
// sm_90a and its like. Elsewhere the functions below are empty, and no row offers them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BITGRAD_SM90A 1
#else
#define BITGRAD_SM90A 0
#endif

// Not for host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

using Barrier = uint64_t;

// Where p lies in the shared memory of the block, in bytes: what descriptors and PTX call its address.
BITGRAD_DEVICE inline uint32_t shared_address(const void* p) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
#elif defined(BITGRAD_CUDA_EMULATED)
  return emulation::shared_address(p);
#else
  return p != nullptr;
#endif
}

// One thread, before any other uses it; then barrier_fence_init and a barrier of all users.
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
// One arrival that also announces bytes of copies.
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
// One arrival at the barrier that lies at the same place in block `rank` of the cluster.
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

// Barrier `id` (1 .. 15; 0 is that of __syncthreads) of `threads` threads of the block, whole warps.
BITGRAD_DEVICE inline void named_barrier_sync(int id, int threads) {
#if defined(__CUDA_ARCH__)
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::named_barrier(id, threads);
#endif
}

// Rank of the block in its cluster.
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
// All threads of all blocks of the cluster.
BITGRAD_DEVICE inline void cluster_sync() {
#if BITGRAD_SM90A
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::cluster_arrive();
  emulation::cluster_wait();
#endif
}

// Registers per thread of the caller's warpgroup from here on, a multiple of 8. All warps of the warpgroup execute it.
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
