// mma.sync on bytes, bits and bf16, ldmatrix and cp.async: PTX on the device, plain C++ in the emulation. The emulation
// is bit-exact except for bf16, where it rounds the sum of 16 products once.
// Bits use AND.popc, native on compute capability 8.0 .. 9.0 only. On others the body is a trap and must not be
// reached.
#pragma once

#include <cstdint>

#include "cuda/device/builtins.h"
#include "cuda/device/fragments.h"

#if !defined(__CUDACC__)
#include "emulation/cuda/mma.h"
#endif

namespace bitgrad::cuda::mma {

#if defined(__CUDACC__)

#define BITGRAD_MMA(text)                                                    \
  asm volatile(text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// d += a b on bytes, each operand signed or unsigned.
template <bool kUnsignedA, bool kUnsignedB>
BITGRAD_DEVICE inline void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kUnsignedA && kUnsignedB)
    BITGRAD_MMA("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32");
  else if constexpr (kUnsignedA)
    BITGRAD_MMA("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32");
  else if constexpr (kUnsignedB)
    BITGRAD_MMA("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32");
  else
    BITGRAD_MMA("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32");
#else
  __trap();
#endif
}
// d += pop(a AND b).
BITGRAD_DEVICE inline void multiply_bits(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000
  BITGRAD_MMA("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc");
#else
  __trap();
#endif
}
#undef BITGRAD_MMA

// d += a b on pairs of bf16, accumulated in fp32. Not volatile, so that the compiler may reorder independent products.
BITGRAD_DEVICE inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}
// x y + z on two bf16 pairs, each result rounded once.
BITGRAD_DEVICE inline uint32_t multiply_add_bf16(uint32_t x, uint32_t y, uint32_t z) {
  uint32_t out = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(y), "r"(z));
#endif
  return out;
}

// Loads four matrices of 8 rows of 16 bytes. `row` points to the row this lane addresses, aligned to 16 bytes.
BITGRAD_DEVICE inline void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}

// Asynchronous copies of a thread from global to shared memory. commit closes a group; groups complete in order.
class AsyncCopies {
 public:
  // kBytes is 4, 8 or 16 and the alignment of both pointers. Copies the first `valid` bytes and zero-fills the rest.
  template <int kBytes>
  BITGRAD_DEVICE void copy(void* to, const void* from, int valid) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (kBytes == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(valid));
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(address), "l"(from), "r"(valid), "n"(kBytes));
#endif
  }
  BITGRAD_DEVICE void commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  // Returns once at most the kPending latest groups are still in flight.
  template <int kPending>
  BITGRAD_DEVICE void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
  }
};

#else

template <bool kUnsignedA, bool kUnsignedB>
inline void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply(kUnsignedA ? (kUnsignedB ? emulation::MmaKind::kU8U8 : emulation::MmaKind::kU8S8)
                                 : (kUnsignedB ? emulation::MmaKind::kS8U8 : emulation::MmaKind::kS8S8),
                      d, a, b);
}
inline void multiply_bits(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply(emulation::MmaKind::kBits, d, a, b);
}
inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::multiply_bf16(d, a, b);
}
inline uint32_t multiply_add_bf16(uint32_t x, uint32_t y, uint32_t z) { return emulation::multiply_add_bf16(x, y, z); }
inline void load_matrices(uint32_t (&out)[4], const void* row) { emulation::load_matrices(out, row); }
using AsyncCopies = emulation::AsyncCopies;

#endif

}  // namespace bitgrad::cuda::mma
