// Small integers in bytes by VPDPBUSD (unsigned A times signed B, four products per lane, no saturation): 64
// multiply-adds per instruction. Group corrections use VPDPWSSD.

#include <cstddef>

#include "base/simd.h"
#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace bitgrad::kernels::gemm_detail {
namespace {

inline __m512i broadcast_unit(const char* p) {
  int32_t unit;
  __builtin_memcpy(&unit, p, 4);
  return _mm512_set1_epi32(unit);
}

template <int R, int P>
void tile_vnni(const S8Tile& t) {
  const char *a = static_cast<const char*>(t.a), *b = static_cast<const char*>(t.b);
  __m512i sums[R][P];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      sums[r][p] = _mm512_add_epi32(_mm512_set1_epi32(t.row_start[r]), _mm512_loadu_si512(t.column_start + 16 * p));
    }
  }
  for (int64_t u = 0; u < t.units; ++u) {
    __m512i y[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(b + p * t.b_step + u * 64);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i x = broadcast_unit(a + r * t.a_step + 4 * u);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], x, y[p]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) _mm512_storeu_si512(t.out + r * kS8TileColumns + 16 * p, sums[r][p]);
  }
}

// Exact sums of one group.
template <int R, int P>
inline void sum_group(const S8GroupTile& t, const char* a, const char* b, __m512i (&acc)[R][P]) {
  constexpr int64_t kHeadA = sizeof(S8GroupOfA), kHeadB = sizeof(S8GroupOfB);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const __m512i start = _mm512_loadu_si512(b + p * t.b_step);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) acc[r][p] = start;
  }
  for (int64_t u = 0; u < t.units; ++u) {
    __m512i y[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(b + p * t.b_step + kHeadB + u * 64);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i x = broadcast_unit(a + r * t.a_step + kHeadA + 4 * u);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) acc[r][p] = _mm512_dpbusd_epi32(acc[r][p], x, y[p]);
    }
  }
  if (!t.corrected) return;
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const __m512i y = _mm512_loadu_si512(b + p * t.b_step + offsetof(S8GroupOfB, y));
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) acc[r][p] = _mm512_dpwssd_epi32(acc[r][p], broadcast_unit(a + r * t.a_step), y);
  }
}

template <int R, int P>
void tile_groups(const S8GroupTile& t) {
  __m512 sums[R][P];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) sums[r][p] = _mm512_loadu_ps(t.t + r * t.t_step + 16 * p);
  }
  const int64_t group_a = static_cast<int64_t>(sizeof(S8GroupOfA)) + 4 * t.units;
  const int64_t group_b = static_cast<int64_t>(sizeof(S8GroupOfB)) + 64 * t.units;
  const char *a = t.a, *b = t.b;
  for (int64_t g = 0; g < t.groups; ++g, a += group_a, b += group_b) {
    __m512i acc[R][P];
    sum_group<R, P>(t, a, b, acc);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512 scale = _mm512_loadu_ps(b + p * t.b_step + offsetof(S8GroupOfB, scale));
      const __m512 offset = _mm512_loadu_ps(b + p * t.b_step + offsetof(S8GroupOfB, offset));
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][p]), scale);
        if (t.offsets) {
          float sum;
          __builtin_memcpy(&sum, a + r * t.a_step + offsetof(S8GroupOfA, sum), 4);
          term = _mm512_add_ps(term, _mm512_mul_ps(_mm512_set1_ps(sum), offset));
        }
        sums[r][p] = _mm512_add_ps(sums[r][p], term);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(t.t + r * t.t_step + 16 * p, sums[r][p]);
  }
}

void panel_sums(const char* panel, int64_t units, int32_t* sums) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t u = 0; u < units; ++u) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(panel + u * 64));
  _mm512_storeu_si512(sums, sum);
}

using TileFunction = void (*)(const S8Tile&);
template <int R>
constexpr TileFunction kRow[4] = {&tile_vnni<R, 1>, &tile_vnni<R, 2>, &tile_vnni<R, 3>, &tile_vnni<R, 4>};
constexpr const TileFunction* kTiles[6] = {kRow<1>, kRow<2>, kRow<3>, kRow<4>, kRow<5>, kRow<6>};

using GroupTileFunction = void (*)(const S8GroupTile&);
template <int R>
constexpr GroupTileFunction kGroupRow[2] = {&tile_groups<R, 1>, &tile_groups<R, 2>};
constexpr const GroupTileFunction* kGroupTiles[6] = {kGroupRow<1>, kGroupRow<2>, kGroupRow<3>,
                                                     kGroupRow<4>, kGroupRow<5>, kGroupRow<6>};

#pragma GCC pop_options

void tile(int rows, int panels, const S8Tile& t) { kTiles[rows - 1][panels - 1](t); }
void group_tile(int rows, int panels, const S8GroupTile& t) { kGroupTiles[rows - 1][panels - 1](t); }
constexpr S8Kernel kKernel{6, 4, false, &tile, 2, &group_tile, &panel_sums, {380, 0.065, 0.25}};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_vnni_avx512, s8_supports(args), s8_cost(args, kKernel), s8_gemm(args, kKernel))

}  // namespace bitgrad::kernels::gemm_impl
