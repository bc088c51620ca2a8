#include "base/simd.h"
#include "dtype/layouts/vnni64_codes.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")

#define BITGRAD_UNROLL _Pragma("GCC unroll 16") for

namespace bitgrad::detail {
namespace {

inline __m512i load_codes(const uint8_t* row, __mmask64 keep, uint8_t flip) {
  if (row == nullptr) return _mm512_setzero_si512();
  return _mm512_xor_si512(_mm512_maskz_loadu_epi8(keep, row),
                          _mm512_maskz_mov_epi8(keep, _mm512_set1_epi8(static_cast<char>(flip))));
}

inline __mmask64 first_codes(int64_t count) { return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1; }

// Transposes 16 x 16 words of 32 bits.
[[gnu::always_inline]] inline void transpose_words(__m512i (&x)[16]) {
  __m512i y[16];
  BITGRAD_UNROLL(int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  BITGRAD_UNROLL(int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // x[4 b + j] holds word j of every quarter of rows 4 b .. 4 b + 3. Quarters q of the four b form line 4 q + j.
  BITGRAD_UNROLL(int j = 0; j < 4; ++j) {
    const __m512i low0 = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x44),
                  low1 = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x44);
    const __m512i high0 = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xEE),
                  high1 = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xEE);
    y[j] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    y[4 + j] = _mm512_shuffle_i32x4(low0, low1, 0xDD);
    y[8 + j] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    y[12 + j] = _mm512_shuffle_i32x4(high0, high1, 0xDD);
  }
  BITGRAD_UNROLL(int i = 0; i < 16; ++i) x[i] = y[i];
}

template <int fields>
void put_rows(const VnniRows& b) {
  constexpr int kWidth = 8 / fields;
  const __mmask64 keep = first_codes(b.count);
  __m512i x[16];
  BITGRAD_UNROLL(int r = 0; r < 16; ++r) x[r] = load_codes(b.rows[r], keep, b.flip);
  BITGRAD_UNROLL(int r = 0; r < 16; ++r) {
    const __m512i sums = _mm512_sad_epu8(x[r], _mm512_setzero_si512());
    _mm512_storeu_si512(b.sums[r], _mm512_add_epi64(_mm512_loadu_si512(b.sums[r]), sums));
  }
  transpose_words(x);
  const int64_t lines = (b.count + 4 * fields - 1) / (4 * fields);
  BITGRAD_UNROLL(int line = 0; line < 16 / fields; ++line) {
    if (line >= lines) return;
    __m512i y = x[line * fields];
    BITGRAD_UNROLL(int f = 1; f < fields; ++f)
    y = _mm512_or_si512(y, _mm512_slli_epi16(x[line * fields + f], f * kWidth));
    _mm512_storeu_si512(b.out + line * b.line_step, y);
  }
}

template <int fields>
void put_columns(const VnniColumns& b) {
  constexpr int kWidth = 8 / fields;
  const __mmask64 keep = first_codes(b.count);
  const __m512i ones = _mm512_set1_epi8(1), word_ones = _mm512_set1_epi16(1);
  __m512i lines[4], sums[4];
  BITGRAD_UNROLL(int p = 0; p < 4; ++p) lines[p] = sums[p] = _mm512_setzero_si512();
  for (int f = 0; f < fields; ++f) {
    __m512i x[4], y[4];
    BITGRAD_UNROLL(int i = 0; i < 4; ++i) x[i] = load_codes(b.rows[4 * f + i], keep, b.flip);
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), c = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i d = _mm512_unpacklo_epi8(x[2], x[3]), e = _mm512_unpackhi_epi8(x[2], x[3]);
    // Quarter p of y[i]: free indices 16 p + 4 i .. 16 p + 4 i + 3.
    y[0] = _mm512_unpacklo_epi16(a, d);
    y[1] = _mm512_unpackhi_epi16(a, d);
    y[2] = _mm512_unpacklo_epi16(c, e);
    y[3] = _mm512_unpackhi_epi16(c, e);
    const __m512i low0 = _mm512_shuffle_i32x4(y[0], y[1], 0x44), low1 = _mm512_shuffle_i32x4(y[2], y[3], 0x44);
    const __m512i high0 = _mm512_shuffle_i32x4(y[0], y[1], 0xEE), high1 = _mm512_shuffle_i32x4(y[2], y[3], 0xEE);
    x[0] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    x[1] = _mm512_shuffle_i32x4(low0, low1, 0xDD);
    x[2] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    x[3] = _mm512_shuffle_i32x4(high0, high1, 0xDD);
    const __m128i shift = _mm_cvtsi32_si128(f * kWidth);
    BITGRAD_UNROLL(int p = 0; p < 4; ++p) {
      // Sums of byte pairs as unsigned 16 bits: at most 510.
      sums[p] = _mm512_add_epi32(sums[p], _mm512_madd_epi16(_mm512_maddubs_epi16(x[p], ones), word_ones));
      lines[p] = _mm512_or_si512(lines[p], _mm512_sll_epi16(x[p], shift));
    }
  }
  BITGRAD_UNROLL(int p = 0; p < 4; ++p) {
    if (16 * p >= b.count) return;
    _mm512_storeu_si512(b.out + 64 * p, lines[p]);
    _mm512_storeu_si512(b.sums + 16 * p, _mm512_add_epi32(_mm512_loadu_si512(b.sums + 16 * p), sums[p]));
  }
}

}  // namespace

void vnni64_rows_avx512(const VnniRows& b) {
  (b.fields == 1 ? &put_rows<1> : b.fields == 2 ? &put_rows<2> : b.fields == 4 ? &put_rows<4> : &put_rows<8>)(b);
}
void vnni64_columns_avx512(const VnniColumns& b) {
  (b.fields == 1   ? &put_columns<1>
   : b.fields == 2 ? &put_columns<2>
   : b.fields == 4 ? &put_columns<4>
                   : &put_columns<8>)(b);
}

}  // namespace bitgrad::detail

#pragma GCC pop_options
