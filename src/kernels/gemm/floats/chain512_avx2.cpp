// gemm_f32_chain512_avx2: tiles of 6 x 16, 12 accumulators of 8 lanes.
#include "base/simd.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

constexpr int kMr = 6, kNr = 16;

#pragma GCC push_options
#pragma GCC target("avx2,fma")

// R rows of the tile and V vectors of columns, `used` in the last one. Vectors are not passed as arguments: the
// compiler would then omit vzeroupper, and all SSE code that follows would be very slow.
template <int R, int V>
void tile_rv(int64_t kc, const float* a, const float* b, float* c, int64_t ldc, int used, bool add) {
  __m256 sum[R][V];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[i][v] = _mm256_setzero_ps();
  for (int64_t k = 0; k < kc; ++k, a += kMr, b += kNr) {
    __m256 y[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) y[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[i][v] = _mm256_fmadd_ps(x, y[v], sum[i][v]);
    }
  }
  const __m256i all = _mm256_set1_epi32(-1);
  const __m256i last = _mm256_cmpgt_epi32(_mm256_set1_epi32(used), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* to = c + i * ldc + 8 * v;
      const __m256i mask = v == V - 1 ? last : all;
      const __m256 old = add ? _mm256_maskload_ps(to, mask) : _mm256_setzero_ps();
      _mm256_maskstore_ps(to, mask, add ? _mm256_add_ps(old, sum[i][v]) : sum[i][v]);
    }
  _mm256_zeroupper();  // the compiler inserts none below -O2, and SSE code would be very slow
}

using Tile = void (*)(int64_t, const float*, const float*, float*, int64_t, int, bool);
#define BITGRAD_TILE_KERNEL(R) \
  { tile_rv<R, 1>, tile_rv<R, 2> }
constexpr Tile kTiles[kMr][2] = {BITGRAD_TILE_KERNEL(1), BITGRAD_TILE_KERNEL(2), BITGRAD_TILE_KERNEL(3),
                                 BITGRAD_TILE_KERNEL(4), BITGRAD_TILE_KERNEL(5), BITGRAD_TILE_KERNEL(6)};
#undef BITGRAD_TILE_KERNEL

void tile(int64_t kc, int64_t rows, int64_t cols, const float* a, const float* b, float* c, int64_t ldc, bool add) {
  const int64_t vectors = cols > 8 ? 2 : 1;
  const auto used = static_cast<int>(cols - 8 * (vectors - 1));
  kTiles[rows - 1][vectors - 1](kc, a, b, c, ldc, used, add);
}
#pragma GCC pop_options

constexpr gemm_detail::ChainKernel kKernel{kMr, kNr, tile, 1.0 / 47, nullptr};

}  // namespace

BITGRAD_DEFINE_GEMM(gemm_f32_chain512_avx2, gemm_detail::chain512_supports(args),
                    gemm_detail::chain512_cost(kKernel, args), gemm_detail::run_chain512(kKernel, args))

}  // namespace bitgrad::kernels::gemm_impl
