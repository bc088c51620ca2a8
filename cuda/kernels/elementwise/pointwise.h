// Common frame of kernels that compute element i of some float arrays from element i of others. Memory-bound: a thread
// loads four adjacent elements with one instruction if all arrays are aligned to 16 bytes.
#pragma once

#include "cuda/device/vectors.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda {

template <int kIn, int kOut>
struct Streams {
  const float* in[kIn];
  float* out[kOut];  // may alias an input
};

template <int N, typename F, int kIn, int kOut>
BITGRAD_DEVICE inline void pointwise_pack(const F& f, const Streams<kIn, kOut>& s, int64_t i) {
  Pack<float, N> in[kIn], out[kOut];
  for (int a = 0; a < kIn; ++a) in[a] = load_pack<N>(s.in[a] + i);
  for (int k = 0; k < N; ++k) {
    float x[kIn], y[kOut];
    for (int a = 0; a < kIn; ++a) x[a] = in[a].v[k];
    f(x, y);
    for (int a = 0; a < kOut; ++a) out[a].v[k] = y[a];
  }
  for (int a = 0; a < kOut; ++a) store_pack<N>(s.out[a] + i, out[a]);
}

// f(x, y) computes the kOut outputs y of an index from its kIn inputs x.
template <typename F, int kIn, int kOut>
BITGRAD_GLOBAL void pointwise(F f, Streams<kIn, kOut> s, int64_t n, bool by_four) {
  const int64_t step = thread_count(), packs = by_four ? n / 4 : 0;
  for (int64_t i = thread_index(); i < packs; i += step) pointwise_pack<4>(f, s, 4 * i);
  for (int64_t i = 4 * packs + thread_index(); i < n; i += step) pointwise_pack<1>(f, s, i);
}

template <typename F, int kIn, int kOut>
void run_pointwise(const char* name, const F& f, const Streams<kIn, kOut>& s, int64_t n) {
  bool by_four = true;
  for (const float* p : s.in) by_four = by_four && lies_on<4>(p);
  for (const float* p : s.out) by_four = by_four && lies_on<4>(p);
  launch(pointwise<F, kIn, kOut>, cover(by_four ? ceil_div(n, 4) : n, name), f, s, n, by_four);
}

}  // namespace bitgrad::cuda
