// CUDA's integer atomics. Blocks run on several host threads, so these are real atomics.
#pragma once

#define BITGRAD_ATOMICS(T)                                                                                   \
  inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }                       \
  inline T atomicSub(T* p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }                       \
  inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }                         \
  inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }                       \
  inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }                       \
  inline T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }                     \
  inline T atomicCAS(T* p, T expected, T v) {                                                                \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                 \
    return expected;                                                                                         \
  }                                                                                                          \
  inline T atomicMax(T* p, T v) {                                                                            \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                            \
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                                        \
    return old;                                                                                              \
  }                                                                                                          \
  inline T atomicMin(T* p, T v) {                                                                            \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                            \
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                                        \
    return old;                                                                                              \
  }

BITGRAD_ATOMICS(int)
BITGRAD_ATOMICS(unsigned)
BITGRAD_ATOMICS(unsigned long long)

#undef BITGRAD_ATOMICS
