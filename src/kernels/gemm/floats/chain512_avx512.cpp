// gemm_f32_chain512_avx512: tiles of 12 x 32, 24 accumulators of 16 lanes.
#include "base/simd.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma")

namespace bitgrad::kernels::gemm_detail {

namespace {

// The transpose of t[j], four values each of rows j, j + 4, j + 8 and j + 12, in eight in-lane shuffles.
[[gnu::always_inline]] inline void store_transposed(const __m512* t, int64_t width, float* out) {
  const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(t[0], t[1])),
                ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(t[0], t[1])),
                cd = _mm512_castps_pd(_mm512_unpacklo_ps(t[2], t[3])),
                cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(t[2], t[3]));
  _mm512_storeu_ps(out, _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)));
  _mm512_storeu_ps(out + width, _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  _mm512_storeu_ps(out + 2 * width, _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high)));
  _mm512_storeu_ps(out + 3 * width, _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high)));
}

// 16 values from 16-bit floats.
[[gnu::always_inline]] inline __m512 widened(__m256i in, bool bf16) {
  return bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(in), 16)) : _mm512_cvtph_ps(in);
}

// Four 16-bit floats of each of two rows.
[[gnu::always_inline]] inline __m128i pair(const uint16_t* low, const uint16_t* high) {
  return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low)),
                            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high)));
}

void transpose_halves16_avx512(const uint16_t* const* rows, bool bf16, int64_t kc, int64_t width, float* out) {
  int64_t k = 0;
  for (; k + 4 <= kc; k += 4, out += 4 * width) {
    __m512 t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      t[j] = widened(_mm256_inserti128_si256(_mm256_castsi128_si256(pair(rows[j] + k, rows[j + 4] + k)),
                                             pair(rows[j + 8] + k, rows[j + 12] + k), 1),
                     bf16);
    store_transposed(t, width, out);
  }
  for (; k < kc; ++k, out += width) {
    uint16_t column[16];
    for (int i = 0; i < 16; ++i) column[i] = rows[i][k];
    _mm512_storeu_ps(out, widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(column)), bf16));
  }
  _mm256_zeroupper();
}

}  // namespace

// Quarters of four rows are combined into one vector as they are loaded.
void transpose16_avx512(const float* const* rows, int64_t kc, int64_t width, float* out) {
  int64_t k = 0;
  for (; k + 4 <= kc; k += 4, out += 4 * width) {
    __m512 t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      t[j] = _mm512_castps128_ps512(_mm_loadu_ps(rows[j] + k));
      t[j] = _mm512_insertf32x4(t[j], _mm_loadu_ps(rows[j + 4] + k), 1);
      t[j] = _mm512_insertf32x4(t[j], _mm_loadu_ps(rows[j + 8] + k), 2);
      t[j] = _mm512_insertf32x4(t[j], _mm_loadu_ps(rows[j + 12] + k), 3);
    }
    store_transposed(t, width, out);
  }
  for (; k < kc; ++k, out += width)
    for (int i = 0; i < 16; ++i) out[i] = rows[i][k];
  _mm256_zeroupper();
}

}  // namespace bitgrad::kernels::gemm_detail

#pragma GCC pop_options

namespace bitgrad::kernels::gemm_impl {
namespace {

constexpr int kMr = 12, kNr = 32;

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma")

// R rows of the tile and V vectors of columns; `last` selects the columns of the last vector.
template <int R, int V>
void tile_rv(int64_t kc, const float* a, const float* b, float* c, int64_t ldc, __mmask16 last, bool add) {
  __m512 sum[R][V];
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[i][v] = _mm512_setzero_ps();
  for (int64_t k = 0; k < kc; ++k, a += kMr, b += kNr) {
    __m512 y[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) y[v] = _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i) {
      const __m512 x = _mm512_set1_ps(a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[i][v] = _mm512_fmadd_ps(x, y[v], sum[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* to = c + i * ldc + 16 * v;
      const __mmask16 mask = v == V - 1 ? last : static_cast<__mmask16>(0xFFFF);
      const __m512 old = add ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(to, mask, add ? _mm512_add_ps(old, sum[i][v]) : sum[i][v]);
    }
  _mm256_zeroupper();  // the compiler inserts none below -O2, and SSE code would be very slow
}

using Tile = void (*)(int64_t, const float*, const float*, float*, int64_t, __mmask16, bool);
#define BITGRAD_TILE_KERNEL(R) \
  { tile_rv<R, 1>, tile_rv<R, 2> }
constexpr Tile kTiles[kMr][2] = {BITGRAD_TILE_KERNEL(1),  BITGRAD_TILE_KERNEL(2),  BITGRAD_TILE_KERNEL(3),
                                 BITGRAD_TILE_KERNEL(4),  BITGRAD_TILE_KERNEL(5),  BITGRAD_TILE_KERNEL(6),
                                 BITGRAD_TILE_KERNEL(7),  BITGRAD_TILE_KERNEL(8),  BITGRAD_TILE_KERNEL(9),
                                 BITGRAD_TILE_KERNEL(10), BITGRAD_TILE_KERNEL(11), BITGRAD_TILE_KERNEL(12)};
#undef BITGRAD_TILE_KERNEL

void tile(int64_t kc, int64_t rows, int64_t cols, const float* a, const float* b, float* c, int64_t ldc, bool add) {
  const int64_t vectors = cols > 16 ? 2 : 1;
  const auto last = static_cast<__mmask16>(0xFFFFu >> (16 * vectors - cols));
  kTiles[rows - 1][vectors - 1](kc, a, b, c, ldc, last, add);
}

#pragma GCC pop_options

constexpr gemm_detail::ChainKernel kKernel{
    kMr, kNr, tile, 1.0 / 95, gemm_detail::transpose16_avx512, gemm_detail::transpose_halves16_avx512};

}  // namespace

BITGRAD_DEFINE_GEMM(gemm_f32_chain512_avx512, gemm_detail::chain512_supports(args),
                    gemm_detail::chain512_cost(kKernel, args), gemm_detail::run_chain512(kKernel, args))

}  // namespace bitgrad::kernels::gemm_impl
