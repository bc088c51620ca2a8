// CUDA's builtins for g++: the names of the programming guide, in the global namespace as in CUDA.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulation/cuda/emulation.h"
#include "emulation/cuda/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
// The blocks of one host thread run one after another, so thread-local storage of the host thread is per block.
#define __shared__ static thread_local

// Set by the scheduler before it resumes a thread.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local uint3 blockDim;
extern constinit thread_local uint3 gridDim;
constexpr int warpSize = 32;

namespace bitgrad::cuda {

template <typename T>
inline T* dynamic_shared() {
  return static_cast<T*>(emulation::shared_base(emulation::cluster_rank()));
}

namespace emulation {

template <typename To, typename From>
inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &value, sizeof(To));
  return out;
}

// Source lane of a shuffle within a segment of `width` lanes; the own lane if the source would be outside the segment.
enum class Shuffle { kIndex, kUp, kDown, kXor };
int shuffle_source(Shuffle kind, int lane, int argument, int width);
uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int argument, int width);
unsigned ballot(unsigned mask, bool predicate, const char* where);
enum class Reduce { kAdd, kMin, kMax, kAnd, kOr, kXor };
int64_t reduce(Reduce kind, unsigned mask, int64_t value);
int barrier_count(bool predicate);

template <typename T>
T shuffle_any(Shuffle kind, unsigned mask, T value, int argument, int width) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(kind, mask, bits, argument, width);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulation
}  // namespace bitgrad::cuda

#include "emulation/cuda/atomics.h"
#include "emulation/cuda/intrinsics.h"

// ---- barriers and warps
inline void __syncthreads() { bitgrad::cuda::emulation::block_barrier(); }
inline int __syncthreads_count(int p) { return bitgrad::cuda::emulation::barrier_count(p != 0); }
inline int __syncthreads_or(int p) { return __syncthreads_count(p) > 0; }
inline int __syncthreads_and(int p) { return __syncthreads_count(p == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  bitgrad::cuda::emulation::warp_collective(mask, nullptr, nullptr, "__syncwarp");
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { bitgrad::cuda::emulation::yield("__nanosleep"); }
[[noreturn]] inline void __trap() { bitgrad::cuda::emulation::fail_thread("__trap() was called"); }

inline unsigned __ballot_sync(unsigned mask, int p) {
  return bitgrad::cuda::emulation::ballot(mask, p != 0, "__ballot_sync");
}
inline int __any_sync(unsigned mask, int p) {
  return bitgrad::cuda::emulation::ballot(mask, p != 0, "__any_sync") != 0;
}
inline int __all_sync(unsigned mask, int p) {
  return bitgrad::cuda::emulation::ballot(mask, p == 0, "__all_sync") == 0;
}
unsigned __activemask();  // the lanes that have not returned

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return bitgrad::cuda::emulation::shuffle_any(bitgrad::cuda::emulation::Shuffle::kIndex, mask, value, lane, width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return bitgrad::cuda::emulation::shuffle_any(bitgrad::cuda::emulation::Shuffle::kUp, mask, value, int(delta), width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return bitgrad::cuda::emulation::shuffle_any(bitgrad::cuda::emulation::Shuffle::kDown, mask, value, int(delta),
                                               width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return bitgrad::cuda::emulation::shuffle_any(bitgrad::cuda::emulation::Shuffle::kXor, mask, value, lanes, width);
}

#define BITGRAD_WARP_REDUCE(T, name, kind)                                                               \
  inline T __reduce_##name##_sync(unsigned mask, T value) {                                              \
    return static_cast<T>(                                                                               \
        bitgrad::cuda::emulation::reduce(bitgrad::cuda::emulation::Reduce::kind, mask, int64_t{value})); \
  }
BITGRAD_WARP_REDUCE(int, add, kAdd)
BITGRAD_WARP_REDUCE(int, min, kMin)
BITGRAD_WARP_REDUCE(int, max, kMax)
BITGRAD_WARP_REDUCE(unsigned, add, kAdd)
BITGRAD_WARP_REDUCE(unsigned, min, kMin)
BITGRAD_WARP_REDUCE(unsigned, max, kMax)
BITGRAD_WARP_REDUCE(unsigned, and, kAnd)
BITGRAD_WARP_REDUCE(unsigned, or, kOr)
BITGRAD_WARP_REDUCE(unsigned, xor, kXor)
#undef BITGRAD_WARP_REDUCE
