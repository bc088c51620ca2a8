// Popcount products with VPOPCNTDQ: one register holds one word of 16 columns. XOR, VPOPCNTD, VPADDD for 512 products
// of bits; limits 341 multiply-adds a cycle where two ports take them.
//
// Row _csa (b1 x b1) counts two words at once by a carry-save adder (Harley and Seal; Warren, "Hacker's Delight", 2nd
// ed., section 5-1) with the exclusive or folded into it. o: bits not counted yet; a1 ^ b1 and a2 ^ b2 are added to it:
//   q = o ^ a1 ^ b1,  s = q ^ a2 ^ b2,  carry = q ? ~s : o,  o = s,  count += 2 popc(carry)
// Three VPTERNLOG, VPOPCNTD, VPADDD for 1024 products of bits: limit 410 a cycle where two ports take them.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
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

// Sums of one row and one panel; t x t and q2 x b1 have two.
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
  store_tile<Dot, R, P>(t, sums);
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

// Bits in two weights: popc(one) + 2 * twos.
struct CarrySum {
  __m512i one, twos;
};
constexpr int kCarry = (kTa & ~kTb & 0xFF) | (~kTa & kTc & 0xFF);  // a ? ~b : c

// Two words of R rows and P panels. Steps of the panels lie side by side, so that no one waits for another.
template <int R, int P>
inline void add_pair(const BitTile& t, int64_t w, CarrySum (&sums)[R][P]) {
  __m512i b1[P], b2[P];
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    b1[p] = _mm512_loadu_si512(t.b[0] + p * t.b_step + w * kPanelRows);
    b2[p] = _mm512_loadu_si512(t.b[0] + p * t.b_step + (w + 1) * kPanelRows);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m512i a1 = _mm512_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w]));
    const __m512i a2 = _mm512_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w + 1]));
    __m512i q[P], s[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) q[p] = _mm512_ternarylogic_epi32(sums[r][p].one, a1, b1[p], kTa ^ kTb ^ kTc);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) s[p] = _mm512_ternarylogic_epi32(q[p], a2, b2[p], kTa ^ kTb ^ kTc);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512i carry = _mm512_ternarylogic_epi32(q[p], s[p], sums[r][p].one, kCarry);
      sums[r][p].one = s[p];
      sums[r][p].twos = _mm512_add_epi32(sums[r][p].twos, _mm512_popcnt_epi32(carry));
      // No instruction: keeps the compiler from reading later words ahead and spilling sums for them.
      asm("" : "+v"(sums[r][p].one), "+v"(sums[r][p].twos));
    }
  }
}

template <int R, int P>
void tile_carry_save(const BitTile& t) {
  CarrySum sums[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) sums[r][p].one = sums[r][p].twos = _mm512_setzero_si512();
  }
  // Few turns of the loop: its end is foretold, and the next tile begins before this one is stored.
  constexpr int64_t kTurn = 4;
  const int64_t full = t.words / kTurn * kTurn, even = t.words / 2 * 2;
  for (int64_t w = 0; w < full; w += kTurn) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kTurn; v += 2) add_pair<R, P>(t, w + v, sums);
  }
#pragma GCC unroll 1
  for (int64_t w = full; w < even; w += 2) add_pair<R, P>(t, w, sums);
  Sum<DotB1B1> counts[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const CarrySum& s = sums[r][p];
      counts[r][p].plus = _mm512_add_epi32(_mm512_add_epi32(s.twos, s.twos), _mm512_popcnt_epi32(s.one));
    }
  }
  if (even != t.words) add_column<DotB1B1, R, P, false>(t, even, counts);
  if (t.tail != 0) add_column<DotB1B1, R, P, true>(t, t.words, counts);
  store_tile<DotB1B1, R, P>(t, counts);
}

using TileFunction = void (*)(const BitTile&);
template <typename Dot>
constexpr TileFunction kTiles[4][4] = {
    {&tile_avx512<Dot, 1, 1>, &tile_avx512<Dot, 1, 2>, &tile_avx512<Dot, 1, 3>, &tile_avx512<Dot, 1, 4>},
    {&tile_avx512<Dot, 2, 1>, &tile_avx512<Dot, 2, 2>, &tile_avx512<Dot, 2, 3>, &tile_avx512<Dot, 2, 4>},
    {&tile_avx512<Dot, 3, 1>, &tile_avx512<Dot, 3, 2>, &tile_avx512<Dot, 3, 3>, &tile_avx512<Dot, 3, 4>},
    {&tile_avx512<Dot, 4, 1>, &tile_avx512<Dot, 4, 2>, &tile_avx512<Dot, 4, 3>, &tile_avx512<Dot, 4, 4>},
};
constexpr TileFunction kCarrySaveTiles[4][2] = {{&tile_carry_save<1, 1>, &tile_carry_save<1, 2>},
                                                {&tile_carry_save<2, 1>, &tile_carry_save<2, 2>},
                                                {&tile_carry_save<3, 1>, &tile_carry_save<3, 2>},
                                                {&tile_carry_save<4, 1>, &tile_carry_save<4, 2>}};
// Two sums an output: half as many panels.
template <typename Dot>
constexpr TileFunction kNarrowTiles[4][2] = {{&tile_avx512<Dot, 1, 1>, &tile_avx512<Dot, 1, 2>},
                                             {&tile_avx512<Dot, 2, 1>, &tile_avx512<Dot, 2, 2>},
                                             {&tile_avx512<Dot, 3, 1>, &tile_avx512<Dot, 3, 2>},
                                             {&tile_avx512<Dot, 4, 1>, &tile_avx512<Dot, 4, 2>}};

}  // namespace
}  // namespace bitgrad::gemm_detail

#pragma GCC pop_options

namespace bitgrad::gemm_detail {
namespace {

template <typename Dot>
void tile(int rows, int panels, const BitTile& t) {
  if constexpr (Dot::kSums == 2) {
    kNarrowTiles<Dot>[rows - 1][panels - 1](t);
  } else {
    kTiles<Dot>[rows - 1][panels - 1](t);
  }
}
template <typename Dot>
constexpr BitKernel kKernel{4, Dot::kSums == 2 ? 2 : 4, &tile<Dot>, &count_row_avx512, true};

void tile_csa(int rows, int panels, const BitTile& t) { kCarrySaveTiles[rows - 1][panels - 1](t); }
// Two registers an output: half as many panels.
constexpr BitKernel kCarrySaveKernel{4, 2, &tile_csa, &count_row_avx512, true};

// Zen 4 (AMD family 19h) splits 512 bits in two and takes 1.62 VPTERNLOG a cycle: there the plain row is the faster
// one.
bool slow_ternary_logic() {
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || !__get_cpuid(1, &a, &b, &c, &d)) return false;
  const uint32_t family = ((a >> 8) & 0xF) + ((a >> 20) & 0xFF);
  return family == 0x19;
#else
  return false;
#endif
}

}  // namespace
}  // namespace bitgrad::gemm_detail

namespace bitgrad::gemm_rows_detail {

using namespace gemm_detail;

bool gemm_b1_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_b1_b1(args); }
bool gemm_b1_b1_i32_popcount_csa_avx512_supports(const GemmArgs& args) { return popcount_supports_b1_b1(args); }
bool gemm_t_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_t_b1(args); }
bool gemm_t_t_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_t_t(args); }

double gemm_b1_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, kKernel<DotB1B1>, 880); }
double gemm_b1_b1_i32_popcount_csa_avx512_cost(const GemmArgs& args) {
  static const bool slow = slow_ternary_logic();
  return popcount_cost(args, kCarrySaveKernel, slow ? 850 : 1010);
}
double gemm_t_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, kKernel<DotTB1>, 840); }
double gemm_t_t_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, kKernel<DotTT>, 435); }

void gemm_b1_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotB1B1>, DotB1B1{}); }
void gemm_b1_b1_i32_popcount_csa_avx512(const GemmArgs& args) { popcount_gemm(args, kCarrySaveKernel, DotB1B1{}); }
void gemm_t_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotTB1>, DotTB1{}); }
void gemm_t_t_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotTT>, DotTT{}); }

bool gemm_i2_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_i2_b1(args); }
bool gemm_u2_b1_i32_popcount_avx512_supports(const GemmArgs& args) { return popcount_supports_u2_b1(args); }

double gemm_i2_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, kKernel<DotI2B1>, 415); }
double gemm_u2_b1_i32_popcount_avx512_cost(const GemmArgs& args) { return popcount_cost(args, kKernel<DotU2B1>, 415); }

void gemm_i2_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotI2B1>, DotI2B1{}); }
void gemm_u2_b1_i32_popcount_avx512(const GemmArgs& args) { popcount_gemm(args, kKernel<DotU2B1>, DotU2B1{}); }

}  // namespace bitgrad::gemm_rows_detail
