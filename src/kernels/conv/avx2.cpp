// The loops of family conv for AVX2.
#include "kernels/conv/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace bitgrad::kernels::conv::avx2 {
namespace {

#define BITGRAD_INLINE __attribute__((always_inline)) static inline
struct Floats {
  using T = float;
  using V = __m256;
  using Mask = __m256i;
  static constexpr int64_t kWidth = 8;
  static constexpr int kVectors = 2, kPanelVectors = 1;
  BITGRAD_INLINE Mask mask(int64_t used) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(used)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  BITGRAD_INLINE V zero() { return _mm256_setzero_ps(); }
  BITGRAD_INLINE V load(const float* p) { return _mm256_loadu_ps(p); }
  BITGRAD_INLINE V load_part(const float* p, Mask m) { return _mm256_maskload_ps(p, m); }
  BITGRAD_INLINE V load_floats(const float* p, Mask m, bool part) { return part ? load_part(p, m) : load(p); }
  BITGRAD_INLINE void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  BITGRAD_INLINE void store_part(float* p, V v, Mask m) { _mm256_maskstore_ps(p, m, v); }
  BITGRAD_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  BITGRAD_INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  BITGRAD_INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
  BITGRAD_INLINE V where(uint64_t bits, V v) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 255)), lane);
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)), v);
  }
  static constexpr int64_t kBytes = 32;
  BITGRAD_INLINE uint64_t matches(const uint8_t* p, uint8_t value) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return static_cast<uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(static_cast<char>(value)))));
  }
  BITGRAD_INLINE void end() { _mm256_zeroupper(); }
};
#undef BITGRAD_INLINE

#include "kernels/conv/loops.inc"

}  // namespace
}  // namespace bitgrad::kernels::conv::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::conv {
const WindowLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::conv
#else
namespace bitgrad::kernels::conv {
const WindowLoops& loops_avx2() { return loops_scalar(); }
}  // namespace bitgrad::kernels::conv
#endif
