// Warpgroup products: D[64, N] (+)= A[64, 32 bytes of k] B[N, 32 bytes of k]^T with int32 sums. PTX wgmma on sm_90a;
// elsewhere the emulation supplies the bodies. A comes from shared memory (ss) or registers (rs), B from shared memory.
// fragments.h defines all fragment layouts.
//
// Order of calls: wgmma_fence; any number of products; wgmma_commit; wgmma_wait<p>, after which at most the p latest
// commits are still in flight. Until then do not touch the sums or a register operand, and do not write the operands in
// shared memory. wgmma_fence_sums keeps the compiler from reading sums before the preceding wait.
#pragma once

#include <cstdint>

#include "cuda/device/barrier.h"
#include "cuda/device/builtins.h"

#if defined(BITGRAD_CUDA_EMULATED)
#include "emulation/cuda/wgmma.h"
#endif

namespace bitgrad::cuda {

// Types of A and B. kB1 is bits: the sum of popc(a and b).
enum class WgmmaType : uint8_t { kS8S8, kS8U8, kU8S8, kU8U8, kB1 };

}  // namespace bitgrad::cuda

// Hidden from host code that only launches kernels.
#if defined(__CUDACC__) || defined(BITGRAD_CUDA_EMULATED)

namespace bitgrad::cuda {

BITGRAD_DEVICE inline void wgmma_fence() {
#if BITGRAD_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::wgmma_fence();
#endif
}
BITGRAD_DEVICE inline void wgmma_commit() {
#if BITGRAD_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::wgmma_commit();
#endif
}
template <int kPending>
BITGRAD_DEVICE inline void wgmma_wait() {
#if BITGRAD_SM90A
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::wgmma_wait(kPending);
#endif
}
template <int kCount>
BITGRAD_DEVICE inline void wgmma_fence_sums(int32_t (&d)[kCount]) {
#if BITGRAD_SM90A
  BITGRAD_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
#else
  (void)d;
#endif
}

#if BITGRAD_SM90A
namespace detail {

#define BITGRAD_S8(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define BITGRAD_SUMS64                                                                                        \
  BITGRAD_S8(0, 1, 2, 3, 4, 5, 6, 7)                                                                          \
  "," BITGRAD_S8(8, 9, 10, 11, 12, 13, 14, 15) "," BITGRAD_S8(16, 17, 18, 19, 20, 21, 22, 23) "," BITGRAD_S8( \
      24, 25, 26, 27, 28, 29, 30,                                                                             \
      31) "," BITGRAD_S8(32, 33, 34, 35, 36, 37, 38,                                                          \
                         39) "," BITGRAD_S8(40, 41, 42, 43, 44, 45, 46,                                       \
                                            47) "," BITGRAD_S8(48, 49, 50, 51, 52, 53, 54,                    \
                                                               55) "," BITGRAD_S8(56, 57, 58, 59, 60, 61, 62, 63)
#define BITGRAD_SUMS128                                                                                                \
  BITGRAD_SUMS64                                                                                                       \
  "," BITGRAD_S8(64, 65, 66, 67, 68, 69, 70, 71) "," BITGRAD_S8(72, 73, 74, 75, 76, 77, 78, 79) "," BITGRAD_S8(        \
      80, 81, 82, 83, 84, 85, 86,                                                                                      \
      87) "," BITGRAD_S8(88, 89, 90, 91, 92, 93, 94,                                                                   \
                         95) "," BITGRAD_S8(96, 97, 98, 99, 100, 101, 102,                                             \
                                            103) "," BITGRAD_S8(104, 105, 106, 107, 108, 109, 110,                     \
                                                                111) "," BITGRAD_S8(112, 113, 114, 115, 116, 117, 118, \
                                                                                    119) "," BITGRAD_S8(120, 121, 122, \
                                                                                                        123, 124, 125, \
                                                                                                        126, 127)
#define BITGRAD_D8(o)                                                                                         \
  "+r"(d[o]), "+r"(d[o + 1]), "+r"(d[o + 2]), "+r"(d[o + 3]), "+r"(d[o + 4]), "+r"(d[o + 5]), "+r"(d[o + 6]), \
      "+r"(d[o + 7])
#define BITGRAD_D64                                                                                             \
  BITGRAD_D8(0), BITGRAD_D8(8), BITGRAD_D8(16), BITGRAD_D8(24), BITGRAD_D8(32), BITGRAD_D8(40), BITGRAD_D8(48), \
      BITGRAD_D8(56)
#define BITGRAD_D128                                                                                            \
  BITGRAD_D64, BITGRAD_D8(64), BITGRAD_D8(72), BITGRAD_D8(80), BITGRAD_D8(88), BITGRAD_D8(96), BITGRAD_D8(104), \
      BITGRAD_D8(112), BITGRAD_D8(120)

// BITGRAD_WGMMA_*(N, types, registers of D, their constraints, placeholders of the operands that follow them)
#define BITGRAD_WGMMA_SS(n, types, sums, outs, pa, pb, pp)                                                            \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " pp ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n types " {" sums \
               "}, " pa ", " pb ", p;\n}"                                                                             \
               : outs                                                                                                 \
               : "l"(a), "l"(b), "r"(accumulate))
#define BITGRAD_WGMMA_RS(n, types, sums, outs, pa, pb, pp)                                                            \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " pp ", 0;\n wgmma.mma_async.sync.aligned.m64n" #n types " {" sums \
               "}, {" pa "}, " pb ", p;\n}"                                                                           \
               : outs                                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define BITGRAD_WGMMA_TYPES(call)                                 \
  if constexpr (kType == WgmmaType::kS8S8) call("k32.s32.s8.s8"); \
  if constexpr (kType == WgmmaType::kS8U8) call("k32.s32.s8.u8"); \
  if constexpr (kType == WgmmaType::kU8S8) call("k32.s32.u8.s8"); \
  if constexpr (kType == WgmmaType::kU8U8) call("k32.s32.u8.u8")

template <WgmmaType kType>
__device__ inline void ss(int32_t (&d)[64], uint64_t a, uint64_t b, int accumulate) {
#define BITGRAD_CALL(types) BITGRAD_WGMMA_SS(128, types, BITGRAD_SUMS64, BITGRAD_D64, "%64", "%65", "%66")
  BITGRAD_WGMMA_TYPES(BITGRAD_CALL);
  if constexpr (kType == WgmmaType::kB1) BITGRAD_CALL("k256.s32.b1.b1.and.popc");
#undef BITGRAD_CALL
}
template <WgmmaType kType>
__device__ inline void ss(int32_t (&d)[128], uint64_t a, uint64_t b, int accumulate) {
#define BITGRAD_CALL(types) BITGRAD_WGMMA_SS(256, types, BITGRAD_SUMS128, BITGRAD_D128, "%128", "%129", "%130")
  BITGRAD_WGMMA_TYPES(BITGRAD_CALL);
  if constexpr (kType == WgmmaType::kB1) BITGRAD_CALL("k256.s32.b1.b1.and.popc");
#undef BITGRAD_CALL
}
template <WgmmaType kType>
__device__ inline void rs(int32_t (&d)[64], const uint32_t (&a)[4], uint64_t b, int accumulate) {
#define BITGRAD_CALL(types) BITGRAD_WGMMA_RS(128, types, BITGRAD_SUMS64, BITGRAD_D64, "%64,%65,%66,%67", "%68", "%69")
  BITGRAD_WGMMA_TYPES(BITGRAD_CALL);
#undef BITGRAD_CALL
}
template <WgmmaType kType>
__device__ inline void rs(int32_t (&d)[128], const uint32_t (&a)[4], uint64_t b, int accumulate) {
#define BITGRAD_CALL(types) \
  BITGRAD_WGMMA_RS(256, types, BITGRAD_SUMS128, BITGRAD_D128, "%128,%129,%130,%131", "%132", "%133")
  BITGRAD_WGMMA_TYPES(BITGRAD_CALL);
#undef BITGRAD_CALL
}

#undef BITGRAD_S8
#undef BITGRAD_SUMS64
#undef BITGRAD_SUMS128
#undef BITGRAD_D8
#undef BITGRAD_D64
#undef BITGRAD_D128
#undef BITGRAD_WGMMA_SS
#undef BITGRAD_WGMMA_RS
#undef BITGRAD_WGMMA_TYPES

}  // namespace detail
#endif

// N = 2 * kCount is 128 or 256. a and b are descriptors. Overwrites D unless `accumulate`.
template <WgmmaType kType, int kCount>
BITGRAD_DEVICE inline void wgmma_ss(int32_t (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
#if BITGRAD_SM90A
  detail::ss<kType>(d, a, b, accumulate);
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::wgmma(static_cast<int>(kType), 2 * kCount, d, a, nullptr, b, accumulate);
#endif
}
// a is the four operand registers of the thread. 8-bit types only.
template <WgmmaType kType, int kCount>
BITGRAD_DEVICE inline void wgmma_rs(int32_t (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  static_assert(kType != WgmmaType::kB1);
#if BITGRAD_SM90A
  detail::rs<kType>(d, a, b, accumulate);
#elif defined(BITGRAD_CUDA_EMULATED)
  emulation::wgmma(static_cast<int>(kType), 2 * kCount, d, 0, a, b, accumulate);
#endif
}

}  // namespace bitgrad::cuda

#endif
