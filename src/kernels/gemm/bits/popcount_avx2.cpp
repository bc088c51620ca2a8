// Popcount products with AVX2: bits of nibbles are counted by VPSHUFB (Mula, Kurz and Lemire 2018, "Faster population
// counts using AVX2 instructions", arXiv 1611.07612, figure 10), summed in bytes and widened to int32 before a byte
// overflows.
#include "base/simd.h"
#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2,popcnt")

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int kHalves = 2;  // registers of 8 columns per panel

inline __m256i byte_counts(__m256i x) {
  const __m256i table =
      _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i low = _mm256_set1_epi8(0x0F);
  return _mm256_add_epi8(_mm256_shuffle_epi8(table, _mm256_and_si256(x, low)),
                         _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32(x, 4), low)));
}

template <typename Dot>
struct Words {
  __m256i p0, p1;
};

// Counts one word into bytes. Per word, b1 x b1 and t x b1 add up to 8, t x t from -8 to 8, uint2 x b1 up to 24, int2 x
// b1 from -16 to 8; a byte holds kFlush words.
template <typename Dot>
constexpr bool kSigned = Dot::kHigh < 0;
template <typename Dot>
constexpr int64_t kFlush = Dot::kSums == 1      ? 31
                           : Dot::kPlanesB == 2 ? 15
                           : kSigned<Dot>       ? 8
                                                : 10;

inline __m256i add_word(__m256i sum, const Words<DotB1B1>& a, const Words<DotB1B1>& b, __m256i keep) {
  return _mm256_add_epi8(sum, byte_counts(_mm256_and_si256(_mm256_xor_si256(a.p0, b.p0), keep)));
}
inline __m256i add_word(__m256i sum, const Words<DotB1B1>& a, const Words<DotB1B1>& b) {
  return _mm256_add_epi8(sum, byte_counts(_mm256_xor_si256(a.p0, b.p0)));
}
inline __m256i add_word(__m256i sum, const Words<DotTB1>& a, const Words<DotTB1>& b) {
  return _mm256_add_epi8(sum, byte_counts(_mm256_and_si256(a.p0, _mm256_xor_si256(a.p1, b.p0))));
}
// popc(k) - 2 popc(k & x) = popc(k & ~x) - popc(k & x).
inline __m256i add_word(__m256i sum, const Words<DotTT>& a, const Words<DotTT>& b) {
  const __m256i both = _mm256_and_si256(a.p0, b.p0), differ = _mm256_xor_si256(a.p1, b.p1);
  return _mm256_sub_epi8(_mm256_add_epi8(sum, byte_counts(_mm256_andnot_si256(differ, both))),
                         byte_counts(_mm256_and_si256(both, differ)));
}

template <int high>
inline __m256i add_word(__m256i sum, const Words<DotQ2B1<high>>& a, const Words<DotQ2B1<high>>& b) {
  const __m256i low = byte_counts(_mm256_and_si256(a.p0, b.p0)), top = byte_counts(_mm256_and_si256(a.p1, b.p0));
  const __m256i twice = _mm256_add_epi8(top, top), both = _mm256_add_epi8(sum, low);
  return high > 0 ? _mm256_add_epi8(both, twice) : _mm256_sub_epi8(both, twice);
}

// Sums the four bytes of every lane.
template <typename Dot>
inline __m256i widen(__m256i bytes) {
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i pairs = kSigned<Dot> ? _mm256_maddubs_epi16(ones, bytes) : _mm256_maddubs_epi16(bytes, ones);
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

template <typename Dot>
inline Words<Dot> load_b(const BitTile& t, int h, int64_t w) {
  const int64_t at = (h / kHalves) * t.b_step + w * kPanelRows + (h % kHalves) * 8;
  Words<Dot> b;
  b.p0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.b[0] + at));
  if constexpr (Dot::kPlanesB == 2) b.p1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.b[1] + at));
  return b;
}
template <typename Dot>
inline Words<Dot> load_a(const BitTile& t, int r, int64_t w) {
  Words<Dot> a;
  a.p0 = _mm256_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w]));
  if constexpr (Dot::kPlanesA == 2) a.p1 = _mm256_set1_epi32(static_cast<int32_t>(t.a[1][r * t.a_step + w]));
  return a;
}

// Byte counts over words [w0, w1), for R rows and H registers of 8 columns.
template <typename Dot, int R, int H>
inline void count_words(const BitTile& t, int64_t w0, int64_t w1, __m256i (&bytes)[R][H]) {
  for (int64_t w = w0; w < w1; ++w) {
    Words<Dot> a[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) a[r] = load_a<Dot>(t, r, w);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const Words<Dot> b = load_b<Dot>(t, h, w);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) bytes[r][h] = add_word(bytes[r][h], a[r], b);
    }
  }
}

// The partial last word: bits beyond k are cleared after the exclusive or, or in A's plane 0.
template <typename Dot, int R, int H>
inline void count_tail(const BitTile& t, __m256i (&bytes)[R][H]) {
  const __m256i keep = _mm256_set1_epi32(static_cast<int32_t>(t.tail));
  for (int r = 0; r < R; ++r) {
    Words<Dot> a = load_a<Dot>(t, r, t.words);
    if constexpr (Dot::kPlanesA == 2) a.p0 = _mm256_and_si256(a.p0, keep);
    if constexpr (Dot::kPlanesA == 2) a.p1 = _mm256_and_si256(a.p1, keep);
    for (int h = 0; h < H; ++h) {
      const Words<Dot> b = load_b<Dot>(t, h, t.words);
      if constexpr (Dot::kPlanesA == 2) {
        bytes[r][h] = add_word(bytes[r][h], a, b);
      } else {
        bytes[r][h] = add_word(bytes[r][h], a, b, keep);
      }
    }
  }
}

template <int R, int H>
inline void clear(__m256i (&bytes)[R][H]) {
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < H; ++h) bytes[r][h] = _mm256_setzero_si256();
}
template <typename Dot, int R, int H>
inline void flush(const __m256i (&bytes)[R][H], __m256i (&sums)[R][H]) {
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < H; ++h) sums[r][h] = _mm256_add_epi32(sums[r][h], widen<Dot>(bytes[r][h]));
}

template <typename Dot, int R, int P>
void tile_avx2(const BitTile& t) {
  constexpr int kH = P * kHalves;
  __m256i sums[R][kH], bytes[R][kH];
  clear(sums);
  for (int64_t w = 0; w < t.words; w += kFlush<Dot>) {
    clear(bytes);
    count_words<Dot, R, kH>(t, w, t.words - w < kFlush<Dot> ? t.words : w + kFlush<Dot>, bytes);
    flush<Dot>(bytes, sums);
  }
  if (t.tail != 0) {
    clear(bytes);
    count_tail<Dot, R, kH>(t, bytes);
    flush<Dot>(bytes, sums);
  }
  for (int r = 0; r < R; ++r) {
    const __m256i base = _mm256_set1_epi32(t.base[r]);
    for (int h = 0; h < kH; ++h) {
      const __m256i dot = _mm256_add_epi32(base, _mm256_mullo_epi32(sums[r][h], _mm256_set1_epi32(Dot::kFactor)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.dots + r * kMaxTileColumns + 8 * h), dot);
    }
  }
}

int32_t count_row_avx2(const uint32_t* row, int64_t words, uint32_t tail) {
  int32_t count = 0;
  for (int64_t w = 0; w < words; ++w) count += _mm_popcnt_u32(row[w]);
  return tail == 0 ? count : count + _mm_popcnt_u32(row[words] & tail);
}

using TileFunction = void (*)(const BitTile&);
template <typename Dot>
constexpr TileFunction kTiles[2][2] = {{&tile_avx2<Dot, 1, 1>, &tile_avx2<Dot, 1, 2>},
                                       {&tile_avx2<Dot, 2, 1>, &tile_avx2<Dot, 2, 2>}};

#pragma GCC pop_options

template <typename Dot>
void tile(int rows, int panels, const BitTile& t) {
  kTiles<Dot>[rows - 1][panels - 1](t);
}
template <typename Dot>
constexpr BitKernel kKernel{2, 2, &tile<Dot>, &count_row_avx2, false};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_POPCOUNT_KERNEL(gemm_b1_b1_i32_popcount_avx2, DotB1B1, 255, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_t_b1_i32_popcount_avx2, DotTB1, 220, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_t_t_i32_popcount_avx2, DotTT, 120, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_i2_b1_i32_popcount_avx2, DotI2B1, 115, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_u2_b1_i32_popcount_avx2, DotU2B1, 118, 0)

}  // namespace bitgrad::kernels::gemm_impl
