// Vector loads and stores of a few adjacent elements by one thread, and matrix coordinates.
#pragma once

#include <cstdint>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/bf16.h"
#include "cuda/device/builtins.h"

namespace bitgrad::cuda {

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

// p must be aligned to N elements.
template <int N, typename T>
BITGRAD_DEVICE inline Pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, typename T>
BITGRAD_DEVICE inline void store_pack(T* p, const Pack<T, N>& x) {
  *reinterpret_cast<Pack<T, N>*>(p) = x;
}

// The same for arrays of fp32, or of bf16 (uint16_t), which is widened on load and rounded to nearest even on store.
BITGRAD_DEVICE inline float widened(float x) { return x; }
BITGRAD_DEVICE inline float widened(uint16_t x) { return bf16_to_float(x); }
template <int N, typename T>
BITGRAD_DEVICE inline Pack<float, N> load_floats(const T* p) {
  const Pack<T, N> x = load_pack<N>(p);
  Pack<float, N> out;
  for (int k = 0; k < N; ++k) out.v[k] = widened(x.v[k]);
  return out;
}
template <int N>
BITGRAD_DEVICE inline void store_floats(float* p, const Pack<float, N>& x) {
  store_pack<N>(p, x);
}
template <int N>
BITGRAD_DEVICE inline void store_floats(uint16_t* p, const Pack<float, N>& x) {
  Pack<uint16_t, N> narrow;
  for (int k = 0; k < N; ++k) narrow.v[k] = bf16_from_float(x.v[k]);
  store_pack<N>(p, narrow);
}

// Whether a pointer is aligned to N elements. True for nullptr.
template <int N, typename T>
BITGRAD_HD inline bool lies_on(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (N * sizeof(T)) == 0;
}

BITGRAD_DEVICE inline int64_t thread_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
BITGRAD_DEVICE inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

struct Cell {
  int64_t row, col;
};
// Splits i = row * cols + col. A 64-bit division costs about a hundred instructions, so 32 bits are used where both
// operands fit.
BITGRAD_DEVICE inline Cell cell_of(int64_t i, int64_t cols) {
  if (((i | cols) >> 32) == 0) {
    const uint32_t a = static_cast<uint32_t>(i), b = static_cast<uint32_t>(cols), row = a / b;
    return {static_cast<int64_t>(row), static_cast<int64_t>(a - row * b)};
  }
  const int64_t row = i / cols;
  return {row, i - row * cols};
}

}  // namespace bitgrad::cuda
