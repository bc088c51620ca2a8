// The loops of family conv for AVX-512.
#include "kernels/conv/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx2,fma")
namespace bitgrad::kernels::conv::avx512 {
namespace {

#define BITGRAD_INLINE __attribute__((always_inline)) static inline
struct Floats {
  using T = float;
  using V = __m512;
  using Mask = __mmask16;
  static constexpr int64_t kWidth = 16;
  static constexpr int kVectors = 4, kPanelVectors = 2;
  BITGRAD_INLINE Mask mask(int64_t used) { return static_cast<Mask>((1u << used) - 1u); }
  BITGRAD_INLINE V zero() { return _mm512_setzero_ps(); }
  BITGRAD_INLINE V load(const float* p) { return _mm512_loadu_ps(p); }
  BITGRAD_INLINE V load_part(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  BITGRAD_INLINE V load_floats(const float* p, Mask m, bool part) { return part ? load_part(p, m) : load(p); }
  BITGRAD_INLINE void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  BITGRAD_INLINE void store_part(float* p, V v, Mask m) { _mm512_mask_storeu_ps(p, m, v); }
  BITGRAD_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  BITGRAD_INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  BITGRAD_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
  BITGRAD_INLINE V where(uint64_t bits, V v) { return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), v); }
  static constexpr int64_t kBytes = 64;
  BITGRAD_INLINE uint64_t matches(const uint8_t* p, uint8_t value) {
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(value)));
  }
  BITGRAD_INLINE void end() { _mm256_zeroupper(); }
};
#undef BITGRAD_INLINE

#include "kernels/conv/loops.inc"

}  // namespace
}  // namespace bitgrad::kernels::conv::avx512
#pragma GCC pop_options

namespace bitgrad::kernels::conv {
const WindowLoops& loops_avx512() { return avx512::kLoops; }
}  // namespace bitgrad::kernels::conv
#else
namespace bitgrad::kernels::conv {
const WindowLoops& loops_avx512() { return loops_scalar(); }
}  // namespace bitgrad::kernels::conv
#endif
