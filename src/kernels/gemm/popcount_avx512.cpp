// Popcount products with VPOPCNTDQ: one register holds one word of 16 columns. XOR, VPOPCNTD, VPADDD for 512 products
// of bits; limits 341 multiply-adds a cycle where two ports take them.
#include <immintrin.h>

#include "kernels/gemm/common.h"
#include "kernels/gemm/popcount.h"
#include "kernels/gemm/rows.h"

#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt")

namespace bitgrad::gemm_detail {
namespace {

// Sums of one row and one panel; t x t has two.
template <typename Dot>
struct Sum {
  __m512i plus, minus;
};
template <typename Dot>
struct Words {
  __m512i p0, p1;
};

// Immediate of VPTERNLOG from the columns of its truth table.
constexpr int kTa = 0xF0, kTb = 0xCC, kTc = 0xAA;

template <bool tail>
inline void add_word(Sum<DotB1B1>& s, const Words<DotB1B1>& a, const Words<DotB1B1>& b, __m512i keep) {
  const __m512i x =
      tail ? _mm512_ternarylogic_epi32(keep, a.p0, b.p0, kTa & (kTb ^ kTc)) : _mm512_xor_si512(a.p0, b.p0);
  s.plus = _mm512_add_epi32(s.plus, _mm512_popcnt_epi32(x));
}
// Of t x b1 and t x t the words of A are cut to k when they are read.
template <bool tail>
inline void add_word(Sum<DotTB1>& s, const Words<DotTB1>& a, const Words<DotTB1>& b, __m512i) {
  s.plus =
      _mm512_add_epi32(s.plus, _mm512_popcnt_epi32(_mm512_ternarylogic_epi32(a.p0, a.p1, b.p0, kTa & (kTb ^ kTc))));
}
template <bool tail>
inline void add_word(Sum<DotTT>& s, const Words<DotTT>& a, const Words<DotTT>& b, __m512i) {
  const __m512i both = _mm512_and_si512(a.p0, b.p0);
  s.plus = _mm512_add_epi32(s.plus, _mm512_popcnt_epi32(both));
  s.minus =
      _mm512_add_epi32(s.minus, _mm512_popcnt_epi32(_mm512_ternarylogic_epi32(both, a.p1, b.p1, kTa & (kTb ^ kTc))));
}

template <typename Dot>
inline __m512i dot_of(const Sum<Dot>& s, int32_t base) {
  const __m512i b = _mm512_set1_epi32(base);
  if constexpr (Dot::kPlanesB == 2) return _mm512_sub_epi32(s.plus, _mm512_add_epi32(s.minus, s.minus));
  if constexpr (Dot::kFactor < 0) return _mm512_sub_epi32(b, _mm512_add_epi32(s.plus, s.plus));
  return _mm512_add_epi32(b, _mm512_add_epi32(s.plus, s.plus));
}

template <typename Dot, int R, int P, bool tail>
inline void add_column(const BitTile& t, int64_t w, Sum<Dot> (&sums)[R][P]) {
  const __m512i keep = tail ? _mm512_set1_epi32(static_cast<int32_t>(t.tail)) : _mm512_setzero_si512();
  Words<Dot> b[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    b[p].p0 = _mm512_loadu_si512(t.b[0] + p * t.b_step + w * kPanelRows);
    if constexpr (Dot::kPlanesB == 2) b[p].p1 = _mm512_loadu_si512(t.b[1] + p * t.b_step + w * kPanelRows);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    Words<Dot> a;
    a.p0 = _mm512_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w]));
    if constexpr (Dot::kPlanesA == 2) {
      a.p1 = _mm512_set1_epi32(static_cast<int32_t>(t.a[1][r * t.a_step + w]));
      if constexpr (tail) a.p0 = _mm512_and_si512(a.p0, keep);
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) add_word<tail>(sums[r][p], a, b[p], keep);
  }
}

inline void store_fp32(const BitTile& t, int r, int p, __m512i dot) {
  const int64_t left = t.columns - 16 * p;
  const __mmask16 lanes = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
  const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(t.sa[r]), _mm512_loadu_ps(t.sb + 16 * p));
  __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale);
  if (t.bias != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(t.bias + 16 * p));
  _mm512_mask_storeu_ps(t.c + r * t.ldc + 16 * p, lanes, y);
}

template <typename Dot, int R, int P>
void tile_avx512(const BitTile& t) {
  Sum<Dot> sums[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[r][p].plus = sums[r][p].minus = _mm512_setzero_si512();
  }
  for (int64_t w = 0; w < t.words; ++w) add_column<Dot, R, P, false>(t, w, sums);
  if (t.tail != 0) add_column<Dot, R, P, true>(t, t.words, sums);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const __m512i dot = dot_of(sums[r][p], t.base[r]);
      if (t.direct) {
        store_fp32(t, r, p, dot);
      } else {
        _mm512_storeu_si512(t.dots + r * kMaxTileColumns + 16 * p, dot);
      }
    }
  }
}

int32_t count_row_avx512(const uint32_t* row, int64_t words, uint32_t tail) {
  __m512i sum = _mm512_setzero_si512();
  const int64_t all = words + (tail != 0);
  for (int64_t w = 0; w < words; w += 16) {
    const __mmask16 lanes = words - w >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (words - w)) - 1);
    sum = _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_maskz_loadu_epi32(lanes, row + w)));
  }
  const int32_t last = all > words ? _mm_popcnt_u32(row[words] & tail) : 0;
  return _mm512_reduce_add_epi32(sum) + last;
}

using TileFunction = void (*)(const BitTile&);
template <typename Dot>
constexpr TileFunction kTiles[4][4] = {
    {&tile_avx512<Dot, 1, 1>, &tile_avx512<Dot, 1, 2>, &tile_avx512<Dot, 1, 3>, &tile_avx512<Dot, 1, 4>},
    {&tile_avx512<Dot, 2, 1>, &tile_avx512<Dot, 2, 2>, &tile_avx512<Dot, 2, 3>, &tile_avx512<Dot, 2, 4>},
    {&tile_avx512<Dot, 3, 1>, &tile_avx512<Dot, 3, 2>, &tile_avx512<Dot, 3, 3>, &tile_avx512<Dot, 3, 4>},
    {&tile_avx512<Dot, 4, 1>, &tile_avx512<Dot, 4, 2>, &tile_avx512<Dot, 4, 3>, &tile_avx512<Dot, 4, 4>},
};
// Two sums an output: half as many panels.
template <>
constexpr TileFunction kTiles<DotTT>[4][4] = {
    {&tile_avx512<DotTT, 1, 1>, &tile_avx512<DotTT, 1, 2>},
    {&tile_avx512<DotTT, 2, 1>, &tile_avx512<DotTT, 2, 2>},
    {&tile_avx512<DotTT, 3, 1>, &tile_avx512<DotTT, 3, 2>},
    {&tile_avx512<DotTT, 4, 1>, &tile_avx512<DotTT, 4, 2>},
};

}  // namespace
}  // namespace bitgrad::gemm_detail

#pragma GCC pop_options

namespace bitgrad::gemm_detail {
namespace {

template <typename Dot>
void tile(int rows, int panels, const BitTile& t) {
  kTiles<Dot>[rows - 1][panels - 1](t);
}
template <typename Dot>
constexpr BitKernel kKernel{4, Dot::kPlanesB == 2 ? 2 : 4, &tile<Dot>, &count_row_avx512, true};

}  // namespace
}  // namespace bitgrad::gemm_detail

namespace bitgrad::gemm_rows_detail {

using namespace gemm_detail;

bool gemm_b1_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_b1_b1(args); }
bool gemm_t_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_t_b1(args); }
bool gemm_t_t_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_t_t(args); }

double gemm_b1_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, 1050); }
double gemm_t_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, 1000); }
double gemm_t_t_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, 540); }

void gemm_b1_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotB1B1>, DotB1B1{}); }
void gemm_t_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotTB1>, DotTB1{}); }
void gemm_t_t_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotTT>, DotTT{}); }

}  // namespace bitgrad::gemm_rows_detail
