// Sum tables with AVX-512 (gemm_f32_table_avx512, gemm_s8_table_avx512): lines of one 512-bit register.
#include "base/simd.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,fma,bmi2")

struct Floats {
  using Number = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg load(const void* p) { return _mm512_load_ps(p); }
  static void store(void* p, Reg x) { _mm512_store_ps(p, x); }
  static Reg add(Reg x, Reg y) { return _mm512_add_ps(x, y); }
  static Reg times(Reg x, int number) { return _mm512_mul_ps(x, _mm512_set1_ps(static_cast<float>(number))); }
};
struct Words {
  using Number = int16_t;
  using Reg = __m512i;
  static constexpr int kLanes = 32;
  static Reg load(const void* p) { return _mm512_load_si512(p); }
  static void store(void* p, Reg x) { _mm512_store_si512(p, x); }
  static Reg add(Reg x, Reg y) { return _mm512_add_epi16(x, y); }
  static Reg times(Reg x, int number) { return _mm512_mullo_epi16(x, _mm512_set1_epi16(static_cast<int16_t>(number))); }
};

#include "kernels/gemm/tables/table_loops.h"

// The line indexes of one group of one-bit codes for 64 columns.
inline __m512i bit_indexes(const gemm_detail::TableShape& shape, const gemm_detail::TableCodes& codes, int64_t k0,
                           int64_t j) {
  const int64_t left = codes.depth - k0, count = left < shape.codes ? left : shape.codes;
  const uint8_t* row = codes.codes + k0 * codes.stride + j / 8;
  __m512i index = _mm512_setzero_si512();
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i, row += codes.stride) {  // the constants stay in registers
    if (i == count) break;
    uint64_t word;
    __builtin_memcpy(&word, row, 8);
    index = _mm512_mask_add_epi8(index, word, index, _mm512_set1_epi8(static_cast<char>(1 << i)));
  }
  return index;
}

// Converts four groups of 16 columns, and four more, one byte each, to the offsets of columns 0 .. 3 of every 16-byte
// lane. The columns of lane i start at out + i * step; lanes: which to store.
inline __attribute__((always_inline)) void store_offsets(__m512i first, __m512i second, int64_t step, int64_t lanes,
                                                         uint16_t* out) {
  const __m512i lanes01 = _mm512_setr_epi32(0, 16, 4, 20, 1, 17, 5, 21, 2, 18, 6, 22, 3, 19, 7, 23);
  const __m512i lanes23 = _mm512_or_si512(lanes01, _mm512_set1_epi32(8)), zero = _mm512_setzero_si512();
  const __m512i x = _mm512_permutex2var_epi32(first, lanes01, second);
  _mm512_storeu_si512(out, _mm512_slli_epi16(_mm512_unpacklo_epi8(x, zero), 6));
  if (lanes > 1) _mm512_storeu_si512(out + step, _mm512_slli_epi16(_mm512_unpackhi_epi8(x, zero), 6));
  if (lanes > 2) {
    const __m512i y = _mm512_permutex2var_epi32(first, lanes23, second);
    _mm512_storeu_si512(out + 2 * step, _mm512_slli_epi16(_mm512_unpacklo_epi8(y, zero), 6));
    if (lanes > 3) _mm512_storeu_si512(out + 3 * step, _mm512_slli_epi16(_mm512_unpackhi_epi8(y, zero), 6));
  }
}

// x[g]: bytes of group g for 16 columns in every lane. Rearranged so that the 8 groups of a column are contiguous.
inline __attribute__((always_inline)) void store_groups(const __m512i* x, int64_t step, int64_t lanes, uint16_t* out) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    __m512i pair[4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      pair[g] = h == 0 ? _mm512_unpacklo_epi8(x[2 * g], x[2 * g + 1]) : _mm512_unpackhi_epi8(x[2 * g], x[2 * g + 1]);
    }
    uint16_t* to = out + 8 * h * gemm_detail::kTableFields;
    store_offsets(_mm512_unpacklo_epi16(pair[0], pair[1]), _mm512_unpacklo_epi16(pair[2], pair[3]), step, lanes, to);
    store_offsets(_mm512_unpackhi_epi16(pair[0], pair[1]), _mm512_unpackhi_epi16(pair[2], pair[3]), step, lanes,
                  to + 4 * gemm_detail::kTableFields);
  }
}

// Every second digit of a row's bytes, in nibbles: `shift` is 0 or 2. For ternary codes, one more than the digit.
inline __attribute__((always_inline)) __m512i digits(__m512i bytes, int shift, __m512i invert) {
  return _mm512_and_si512(_mm512_srli_epi16(_mm512_xor_si512(bytes, invert), shift), _mm512_set1_epi8(0x33));
}

// x + Base * y in nibbles.
template <int Base>
inline __attribute__((always_inline)) __m512i with_next(__m512i x, __m512i y) {
  const __m512i twice = _mm512_add_epi8(y, y);
  return _mm512_add_epi8(_mm512_add_epi8(x, twice), Base == 3 ? y : twice);
}

// The line indexes of one group of two-bit codes for 256 columns: the lanes of x[t] hold 16 t .. 16 t + 15 of each 64.
template <int Base>
inline __attribute__((always_inline)) void pair_indexes(const gemm_detail::TableShape& shape,
                                                        const gemm_detail::TableCodes& codes, int g, int64_t j,
                                                        __m512i (*x)[8]) {
  const int64_t k0 = int64_t{g} * shape.codes;
  const int64_t bytes = (codes.columns - j + 31) / 32 * 8;  // whole words
  const __mmask64 mask = bytes >= 64 ? ~0ull : (1ull << bytes) - 1;
  // Missing codes count as digit 0.
  const __m512i none = _mm512_set1_epi8(static_cast<char>(Base == 3 ? 0xFF : (shape.first < 0 ? 0xAA : 0)));
  const __m512i invert = _mm512_set1_epi8(static_cast<char>(shape.first < 0 ? 0xAA : 0));
  const __m512i nibble = _mm512_set1_epi8(15), surplus = _mm512_set1_epi8(Base == 3 ? 40 : 0);
  __m512i row[4], part[4];
#pragma GCC unroll 4
  for (int i = 0; i < (Base == 3 ? 4 : 3); ++i) {
    const int64_t k = k0 + i;
    row[i] = k < codes.depth ? _mm512_maskz_loadu_epi8(mask, codes.codes + k * codes.stride + j / 4) : none;
  }
#pragma GCC unroll 2
  for (int odd = 0; odd < 2; ++odd) {
    const __m512i low = with_next<Base>(digits(row[0], 2 * odd, invert), digits(row[1], 2 * odd, invert));
    const __m512i third = digits(row[2], 2 * odd, invert);
    const __m512i high = Base == 3 ? with_next<Base>(third, digits(row[3], 2 * odd, invert)) : third;
#pragma GCC unroll 2
    for (int upper = 0; upper < 2; ++upper) {
      const __m512i p = _mm512_and_si512(_mm512_srli_epi16(low, 4 * upper), nibble);
      const __m512i q = _mm512_and_si512(_mm512_srli_epi16(high, 4 * upper), nibble);
      const __m512i times = Base == 3 ? _mm512_add_epi8(q, _mm512_slli_epi16(q, 3)) : _mm512_slli_epi16(q, 4);
      part[2 * upper + odd] = _mm512_sub_epi8(_mm512_add_epi8(p, times), surplus);
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i a = h == 0 ? _mm512_unpacklo_epi8(part[0], part[1]) : _mm512_unpackhi_epi8(part[0], part[1]);
    const __m512i b = h == 0 ? _mm512_unpacklo_epi8(part[2], part[3]) : _mm512_unpackhi_epi8(part[2], part[3]);
    x[2 * h][g] = _mm512_unpacklo_epi16(a, b);
    x[2 * h + 1][g] = _mm512_unpackhi_epi16(a, b);
  }
}

template <int Base>
void pair_offsets(const gemm_detail::TableShape& shape, const gemm_detail::TableCodes& codes, uint16_t* out) {
  constexpr int64_t kStep = 64 * gemm_detail::kTableFields;
  for (int64_t j = 0; j < codes.columns; j += 256, out += 4 * kStep) {
    __m512i x[4][8];
    for (int g = 0; g < 8; ++g) {
      if (g < shape.groups && int64_t{g} * shape.codes < codes.depth) {
        pair_indexes<Base>(shape, codes, g, j, x);
      } else {
        for (int t = 0; t < 4; ++t) x[t][g] = _mm512_setzero_si512();
      }
    }
    const int64_t lanes = (codes.columns - j + 63) / 64;
    for (int t = 0; t < 4; ++t) store_groups(x[t], kStep, lanes, out + 16 * t * gemm_detail::kTableFields);
  }
}

void offsets(const gemm_detail::TableShape& shape, const gemm_detail::TableCodes& codes, uint16_t* out) {
  if (codes.bits == 2) {
    (shape.base == 3 ? pair_offsets<3> : pair_offsets<4>)(shape, codes, out);
  } else {
    for (int64_t j = 0; j < codes.columns; j += 64, out += 64 * gemm_detail::kTableFields) {
      __m512i x[8];
      for (int g = 0; g < 8; ++g) {
        const int64_t k0 = int64_t{g} * shape.codes;
        x[g] = g < shape.groups && k0 < codes.depth ? bit_indexes(shape, codes, k0, j) : _mm512_setzero_si512();
      }
      store_groups(x, 16 * gemm_detail::kTableFields, 4, out);
    }
  }
  _mm256_zeroupper();
}

// Transposes 16 lines of 16 lanes in place.
inline __attribute__((always_inline)) void transpose(__m512* x) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88), b = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
    const __m512 c = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xDD), d = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xDD);
    t[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    t[i + 8] = _mm512_shuffle_f32x4(a, b, 0xDD);
    t[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(c, d, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = t[i];
}

// 16 lanes of one column.
enum class Sums { kFloats, kLow, kBoth };
template <Sums S>
inline __attribute__((always_inline)) __m512 load_sums(const gemm_detail::TableFinish& f, int64_t j) {
  if constexpr (S == Sums::kFloats) return _mm512_load_ps(f.sums + j * 16);
  __m512i x = _mm512_cvtepi16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(f.low + j * 32)));
  if constexpr (S == Sums::kBoth) {
    const __m512i over = _mm512_cvtepi16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(f.high + j * 32)));
    x = _mm512_add_epi32(x, _mm512_slli_epi32(over, 12));
  }
  return _mm512_cvtepi32_ps(x);
}

// Columns [j, j + count), count <= 16, of all rows.
template <Sums S>
void finish_block(const gemm_detail::TableFinish& f, int64_t j, int64_t count) {
  const auto mask = static_cast<__mmask16>(0xFFFFu >> (16 - count));
  __m512 x[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = i < count ? load_sums<S>(f, j + i) : _mm512_setzero_ps();
  transpose(x);
  const __m512 scale = f.column_scale != nullptr ? _mm512_maskz_loadu_ps(mask, f.column_scale + j) : _mm512_set1_ps(1);
  const __m512 bias = f.bias != nullptr ? _mm512_maskz_loadu_ps(mask, f.bias + j) : _mm512_setzero_ps();
  const bool scaled = f.column_scale != nullptr || f.row_scale != nullptr, biased = f.bias != nullptr, add = f.add;
  const float* const row_scale = f.row_scale;
  const int64_t rows = f.rows, ldc = f.ldc;
  float* c = f.c + j;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i, c += ldc) {
    if (i >= rows) break;
    __m512 y = x[i];
    if (scaled) y = _mm512_mul_ps(y, row_scale == nullptr ? scale : _mm512_mul_ps(_mm512_set1_ps(row_scale[i]), scale));
    if (biased) y = _mm512_add_ps(y, bias);
    if (add) y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), y);
    _mm512_mask_storeu_ps(c, mask, y);
    if (add) _mm_prefetch(reinterpret_cast<const char*>(c + 64), _MM_HINT_T0);
  }
}

// Writes the sums of 16 whole rows to C, times row_scale if Scaled.
template <Sums S, bool Scaled>
void store_blocks(const gemm_detail::TableFinish& f, int64_t columns) {
  const int64_t ldc = f.ldc;
  const float* const row_scale = f.row_scale;
  for (int64_t j = 0; j < columns; j += 16) {
    __m512 x[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) x[i] = load_sums<S>(f, j + i);
    transpose(x);
    float* c = f.c + j;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i, c += ldc)
      _mm512_storeu_ps(c, Scaled ? _mm512_mul_ps(x[i], _mm512_set1_ps(row_scale[i])) : x[i]);
  }
}

template <Sums S>
void finish_columns(const gemm_detail::TableFinish& f) {
  int64_t j = 0;
  if (f.rows == 16 && f.column_scale == nullptr && f.bias == nullptr && !f.add) {
    j = f.columns / 16 * 16;
    (f.row_scale != nullptr ? store_blocks<S, true> : store_blocks<S, false>)(f, j);
  }
  for (; j < f.columns; j += 16) finish_block<S>(f, j, f.columns - j < 16 ? f.columns - j : 16);
  _mm256_zeroupper();
}

void finish(const gemm_detail::TableFinish& f) {
  if (f.sums != nullptr) return finish_columns<Sums::kFloats>(f);
  (f.high == nullptr ? finish_columns<Sums::kLow> : finish_columns<Sums::kBoth>)(f);
}

int32_t bound(const int16_t* a, int64_t depth) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t k = 0; k < depth; ++k) sum = _mm512_add_epi16(sum, _mm512_abs_epi16(_mm512_load_si512(a + k * 32)));
  const __m512i max = _mm512_max_epi32(_mm512_and_si512(sum, _mm512_set1_epi32(0xFFFF)), _mm512_srli_epi32(sum, 16));
  const int32_t result = _mm512_reduce_max_epi32(max);
  _mm256_zeroupper();
  return result;
}

void carry(int16_t* low, int16_t* high, int64_t columns, bool first) {
  for (int64_t j = 0; j < columns; ++j, low += 32, high += 32) {
    const __m512i x = _mm512_load_si512(low);
    const __m512i over = _mm512_srai_epi16(_mm512_add_epi16(_mm512_srai_epi16(x, 11), _mm512_set1_epi16(1)), 1);
    _mm512_store_si512(low, _mm512_sub_epi16(x, _mm512_slli_epi16(over, 12)));
    _mm512_store_si512(high, first ? over : _mm512_add_epi16(_mm512_load_si512(high), over));
  }
  _mm256_zeroupper();
}

#pragma GCC pop_options
constexpr gemm_detail::TableKernel kKernel{
    offsets, {build_tables<Floats>, add_tables<Floats>}, {build_tables<Words>, add_tables<Words>}, finish, bound, carry,
    0.33};

}  // namespace

BITGRAD_DEFINE_GEMM(gemm_f32_table_avx512, gemm_detail::table_f32_supports(args),
                    gemm_detail::table_f32_cost(kKernel, args), gemm_detail::run_table_f32(kKernel, args))
BITGRAD_DEFINE_GEMM(gemm_s8_table_avx512, gemm_detail::table_i16_supports(args),
                    gemm_detail::table_i16_cost(kKernel, args), gemm_detail::run_table_i16(kKernel, args))

}  // namespace bitgrad::kernels::gemm_impl
