// The loops of direct convolutions (binary/, first_layer/) with AVX-512.
#include "base/simd.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/first_layer/first_layer.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,fma,bmi2,prefer-vector-width=512")

#include "kernels/conv/binary/loops.h"
#include "kernels/conv/first_layer/loops.h"

namespace bitgrad::kernels::conv {
namespace {

// 16 lanes.
struct Avx512Lanes {
  using F = __m512;
  using I = __m512i;
  BITGRAD_INLINE __mmask16 first(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << n) - 1u); }
  BITGRAD_INLINE F zero() { return _mm512_setzero_ps(); }
  BITGRAD_INLINE F all(const float* p) { return _mm512_set1_ps(*p); }
  BITGRAD_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  BITGRAD_INLINE F load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  BITGRAD_INLINE F load_bytes(const int8_t* p, int64_t n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p)));
  }
  BITGRAD_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  BITGRAD_INLINE void store_part(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
  BITGRAD_INLINE void fetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
  BITGRAD_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  BITGRAD_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  BITGRAD_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  BITGRAD_INLINE F permute(I at, F table) { return _mm512_permutexvar_ps(at, table); }
  // Rounds to bf16, to nearest even; NaN stays NaN.
  BITGRAD_INLINE F rounded(F v) {
    const I u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const I up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const I high = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(high, _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  // Stores integer-valued floats as int32.
  BITGRAD_INLINE void store_integers(int32_t* p, F v, int64_t n) {
    _mm512_mask_storeu_epi32(p, first(n), _mm512_cvttps_epi32(v));
  }
  // v[j]: lane j of every four lanes of each vector.
  BITGRAD_INLINE void transpose(F (&v)[4]) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])),
                  b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1])),
                  c = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])),
                  d = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  BITGRAD_INLINE I no_bits() { return _mm512_setzero_si512(); }
  BITGRAD_INLINE I bits(I v, uint16_t lanes, int bit) {
    return _mm512_mask_or_epi32(v, lanes, v, _mm512_set1_epi32(bit));
  }
  BITGRAD_INLINE I load_index(const int32_t* p) { return _mm512_loadu_si512(p); }
  // Prevents the compiler from loading it again for a second use.
  BITGRAD_INLINE I once(I v) {
    asm("" : "+v"(v));
    return v;
  }
  BITGRAD_INLINE void store(int32_t* p, I v) { _mm512_storeu_si512(p, v); }
  BITGRAD_INLINE void store_part(int32_t* p, I v, int64_t n) { _mm512_mask_storeu_epi32(p, first(n), v); }
  BITGRAD_INLINE I load_words(const uint64_t* p) { return _mm512_loadu_si512(p); }
  BITGRAD_INLINE I word(const void* p) {
    int64_t x;
    __builtin_memcpy(&x, p, 8);
    return _mm512_set1_epi64(x);
  }
  // Adds to each lane of sum the number of ones in (a ^ b) & mask.
  BITGRAD_INLINE I add_differences(I sum, I a, I b, I mask) {
    return _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_ternarylogic_epi64(a, b, mask, 0x28)));
  }
  BITGRAD_INLINE I narrow(I low, I high) {
    return _mm512_permutex2var_epi32(low, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                                     high);
  }
  BITGRAD_INLINE I products(I differences, int32_t n) {
    return _mm512_sub_epi32(_mm512_set1_epi32(n), _mm512_slli_epi32(differences, 1));
  }
  BITGRAD_INLINE F floats(I v) { return _mm512_cvtepi32_ps(v); }
};

constexpr FewIsa kFewAvx512 = FewLoops<Avx512Lanes>::isa();
constexpr SignIsa kSignsAvx512 = SignLoops<Avx512Lanes>::isa();

}  // namespace
#pragma GCC pop_options

const FewIsa& few_machine() { return kFewAvx512; }
const SignIsa& signs_machine() { return kSignsAvx512; }
}  // namespace bitgrad::kernels::conv
