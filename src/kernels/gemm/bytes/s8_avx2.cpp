// Small integers in 16-bit words by VPMADDWD (two products per lane, exact for these ranges): 16 multiply-adds per
// instruction. VPMADDUBSW would saturate.

#include <cstddef>

#include "base/simd.h"
#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

namespace bitgrad::kernels::gemm_detail {
namespace {

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i broadcast_unit(const char* p) {
  int32_t unit;
  __builtin_memcpy(&unit, p, 4);
  return _mm256_set1_epi32(unit);
}

// R rows times H registers of 8 columns; H = 2 is one panel.
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

// Scaled sums of one group of R rows and one panel. They are kept in memory because the exact sums fill the registers.
template <int R>
inline void add_group(const S8GroupTile& t, const char* a, const char* b, const __m256i (&acc)[R][2]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(b + offsetof(S8GroupOfB, scale)) + 8 * h);
    const __m256 offset = _mm256_loadu_ps(reinterpret_cast<const float*>(b + offsetof(S8GroupOfB, offset)) + 8 * h);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][h]), scale);
      if (t.offsets) {
        float sum;
        __builtin_memcpy(&sum, a + r * t.a_step + offsetof(S8GroupOfA, sum), 4);
        term = _mm256_add_ps(term, _mm256_mul_ps(_mm256_set1_ps(sum), offset));
      }
      float* to = t.t + r * t.t_step + 8 * h;
      _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), term));
    }
  }
}

template <int R>
void tile_groups(const S8GroupTile& t) {
  constexpr int64_t kHeadA = sizeof(S8GroupOfA), kHeadB = sizeof(S8GroupOfB);
  const char *a = t.a, *b = t.b;
  for (int64_t g = 0; g < t.groups; ++g, a += kHeadA + 4 * t.units, b += kHeadB + 64 * t.units) {
    __m256i acc[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      acc[r][0] = load(b);
      acc[r][1] = load(b + 32);
    }
    const auto add = [&](const char* x_at, const char* y_at) __attribute__((always_inline)) {
      const __m256i low = load(y_at), high = load(y_at + 32);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256i x = broadcast_unit(x_at + r * t.a_step);
        acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(x, low));
        acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(x, high));
      }
    };
    for (int64_t u = 0; u < t.units; ++u) add(a + kHeadA + 4 * u, b + kHeadB + 64 * u);
    if (t.corrected) add(a, b + offsetof(S8GroupOfB, y));
    add_group<R>(t, a, b, acc);
  }
}

void panel_sums(const char* panel, int64_t units, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i low = _mm256_setzero_si256(), high = low;
  for (int64_t u = 0; u < units; ++u) {
    low = _mm256_add_epi32(low, _mm256_madd_epi16(ones, load(panel + u * 64)));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(ones, load(panel + u * 64 + 32)));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8), high);
}

using GroupTileFunction = void (*)(const S8GroupTile&);
constexpr GroupTileFunction kGroupTiles[4] = {&tile_groups<1>, &tile_groups<2>, &tile_groups<3>, &tile_groups<4>};

using TileFunction = void (*)(const S8Tile&);
constexpr TileFunction kTiles[4] = {&tile_madd<1>, &tile_madd<2>, &tile_madd<3>, &tile_madd<4>};

#pragma GCC pop_options

void tile(int rows, int, const S8Tile& t) { kTiles[rows - 1](t); }
void group_tile(int rows, int, const S8GroupTile& t) { kGroupTiles[rows - 1](t); }
constexpr S8Kernel kKernel{4, 1, true, &tile, 1, &group_tile, &panel_sums, {60, 0.12, 0.25}};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_madd_avx2, s8_supports(args), s8_cost(args, kKernel), s8_gemm(args, kKernel))

}  // namespace bitgrad::kernels::gemm_impl
