// Small integers in 16-bit words by VPMADDWD (two products a lane, exact for these ranges): 16 multiply-adds an
// instruction. VPMADDUBSW would saturate.
#include <immintrin.h>

#include "kernels/gemm/rows.h"
#include "kernels/gemm/s8.h"

#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

namespace bitgrad::gemm_detail {
namespace {

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i broadcast_unit(const char* p) {
  int32_t unit;
  __builtin_memcpy(&unit, p, 4);
  return _mm256_set1_epi32(unit);
}

// R rows times H registers of 8 columns. H = 2 is one panel.
template <int R>
void tile_madd(const S8Tile& t) {
  constexpr int kH = 2;
  const char *a = static_cast<const char*>(t.a), *b = static_cast<const char*>(t.b);
  __m256i sums[R][kH];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kH; ++h)
      sums[r][h] = _mm256_add_epi32(_mm256_set1_epi32(t.row_start[r]), load(t.column_start + 8 * h));
  }
  for (int64_t u = 0; u < t.units; ++u) {
    const __m256i y[kH] = {load(b + u * 64), load(b + u * 64 + 32)};
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i x = broadcast_unit(a + r * t.a_step + 4 * u);
#pragma GCC unroll 2
      for (int h = 0; h < kH; ++h) sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(x, y[h]));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kH; ++h) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.out + r * kS8TileColumns + 8 * h), sums[r][h]);
    }
  }
}

using TileFunction = void (*)(const S8Tile&);
constexpr TileFunction kTiles[4] = {&tile_madd<1>, &tile_madd<2>, &tile_madd<3>, &tile_madd<4>};

}  // namespace
}  // namespace bitgrad::gemm_detail

#pragma GCC pop_options

namespace bitgrad::gemm_detail {
namespace {

void tile(int rows, int, const S8Tile& t) { kTiles[rows - 1](t); }
constexpr S8Kernel kKernel{4, 1, true, &tile};

}  // namespace
}  // namespace bitgrad::gemm_detail

namespace bitgrad::gemm_rows_detail {

using namespace gemm_detail;

bool gemm_s8_s8_i32_madd_avx2_supports(const GemmArgs& args) { return s8_supports(args); }
double gemm_s8_s8_i32_madd_avx2_cost(const GemmArgs& args) { return s8_cost(args, 60, 0.25); }
void gemm_s8_s8_i32_madd_avx2(const GemmArgs& args) { s8_gemm(args, kKernel); }

}  // namespace bitgrad::gemm_rows_detail
