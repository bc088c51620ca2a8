// Shared by the tiles of the popcount kernels in 512-bit registers: sums, one word of all rows and panels, output.
// Included inside a target region (popcount_avx512.cpp, popcount_csa_avx512.cpp), so that this text is compiled for
// that instruction set. Must not include anything.
#pragma once

namespace bitgrad::kernels::gemm_detail {
namespace {

// Sums for one row and one panel; t x t and q2 x b1 have two.
template <typename Dot>
struct Sum {
  __m512i plus, minus;
};
template <typename Dot>
struct Words {
  __m512i p0, p1;
};

// Operand columns of the truth table from which VPTERNLOG immediates are computed.
constexpr int kTa = 0xF0, kTb = 0xCC, kTc = 0xAA;

template <bool tail>
inline void add_word(Sum<DotB1B1>& s, const Words<DotB1B1>& a, const Words<DotB1B1>& b, __m512i keep) {
  const __m512i x =
      tail ? _mm512_ternarylogic_epi32(keep, a.p0, b.p0, kTa & (kTb ^ kTc)) : _mm512_xor_si512(a.p0, b.p0);
  s.plus = _mm512_add_epi32(s.plus, _mm512_popcnt_epi32(x));
}
// For t x b1 and t x t, the words of A are masked to k when they are read.
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
template <bool tail, int high>
inline void add_word(Sum<DotQ2B1<high>>& s, const Words<DotQ2B1<high>>& a, const Words<DotQ2B1<high>>& b, __m512i) {
  s.plus = _mm512_add_epi32(s.plus, _mm512_popcnt_epi32(_mm512_and_si512(a.p0, b.p0)));
  s.minus = _mm512_add_epi32(s.minus, _mm512_popcnt_epi32(_mm512_and_si512(a.p1, b.p0)));
}

template <typename Dot>
inline __m512i dot_of(const Sum<Dot>& s, int32_t base) {
  const __m512i b = _mm512_set1_epi32(base);
  if constexpr (Dot::kPlanesB == 2) return _mm512_sub_epi32(s.plus, _mm512_add_epi32(s.minus, s.minus));
  if constexpr (Dot::kSums == 2) {
    const __m512i twice = _mm512_add_epi32(s.minus, s.minus);
    const __m512i count = Dot::kHigh > 0 ? _mm512_add_epi32(s.plus, twice) : _mm512_sub_epi32(s.plus, twice);
    return _mm512_add_epi32(b, _mm512_add_epi32(count, count));
  }
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
      if constexpr (tail && Dot::kSums == 2) a.p1 = _mm512_and_si512(a.p1, keep);
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) add_word<tail>(sums[r][p], a, b[p], keep);
  }
}

template <typename Dot, int R, int P, bool with_bias>
inline void store_fp32(const BitTile& t, const Sum<Dot> (&sums)[R][P]) {
  __m512 sb[P], bias[P];
  __mmask16 lanes[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const int64_t left = t.columns - 16 * p;
    lanes[p] = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    sb[p] = _mm512_loadu_ps(t.sb + 16 * p);
    if constexpr (with_bias) bias[p] = _mm512_loadu_ps(t.bias + 16 * p);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m512 sa = _mm512_set1_ps(t.sa[r]);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(dot_of(sums[r][p], t.base[r])), _mm512_mul_ps(sa, sb[p]));
      if constexpr (with_bias) y = _mm512_add_ps(y, bias[p]);
      _mm512_mask_storeu_ps(t.c + r * t.ldc + 16 * p, lanes[p], y);
    }
  }
}

template <typename Dot, int R, int P>
inline void store_tile(const BitTile& t, const Sum<Dot> (&sums)[R][P]) {
  if (t.direct) {
    if (t.bias != nullptr) {
      store_fp32<Dot, R, P, true>(t, sums);
    } else {
      store_fp32<Dot, R, P, false>(t, sums);
    }
    return;
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      _mm512_storeu_si512(t.dots + r * kMaxTileColumns + 16 * p, dot_of(sums[r][p], t.base[r]));
  }
}

inline int32_t count_row_avx512(const uint32_t* row, int64_t words, uint32_t tail) {
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

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail
