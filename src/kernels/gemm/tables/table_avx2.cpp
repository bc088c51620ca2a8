// Sum tables with AVX2 (gemm_f32_table_avx2, gemm_s8_table_avx2): lines of two 256-bit registers.
#include "base/simd.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tables/table.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

struct Floats {
  using Number = float;
  struct Reg {
    __m256 low, high;
  };
  static constexpr int kLanes = 16;
  static inline __attribute__((always_inline)) Reg load(const void* p) {
    const float* x = static_cast<const float*>(p);
    return {_mm256_load_ps(x), _mm256_load_ps(x + 8)};
  }
  static inline __attribute__((always_inline)) void store(void* p, const Reg& x) {
    _mm256_store_ps(static_cast<float*>(p), x.low);
    _mm256_store_ps(static_cast<float*>(p) + 8, x.high);
  }
  static inline __attribute__((always_inline)) Reg add(const Reg& x, const Reg& y) {
    return {_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)};
  }
  static inline __attribute__((always_inline)) Reg times(const Reg& x, int number) {
    const __m256 y = _mm256_set1_ps(static_cast<float>(number));
    return {_mm256_mul_ps(x.low, y), _mm256_mul_ps(x.high, y)};
  }
};
struct Words {
  using Number = int16_t;
  struct Reg {
    __m256i low, high;
  };
  static constexpr int kLanes = 32;
  static inline __attribute__((always_inline)) Reg load(const void* p) {
    const __m256i* x = static_cast<const __m256i*>(p);
    return {_mm256_load_si256(x), _mm256_load_si256(x + 1)};
  }
  static inline __attribute__((always_inline)) void store(void* p, const Reg& x) {
    _mm256_store_si256(static_cast<__m256i*>(p), x.low);
    _mm256_store_si256(static_cast<__m256i*>(p) + 1, x.high);
  }
  static inline __attribute__((always_inline)) Reg add(const Reg& x, const Reg& y) {
    return {_mm256_add_epi16(x.low, y.low), _mm256_add_epi16(x.high, y.high)};
  }
  static inline __attribute__((always_inline)) Reg times(const Reg& x, int number) {
    const __m256i y = _mm256_set1_epi16(static_cast<int16_t>(number));
    return {_mm256_mullo_epi16(x.low, y), _mm256_mullo_epi16(x.high, y)};
  }
};

#include "kernels/gemm/tables/table_loops.h"

// Bytes of 2^i where the bit of a column is set, otherwise 0.
inline __attribute__((always_inline)) __m256i one_bit(const uint8_t* codes, int i) {
  int32_t word;
  __builtin_memcpy(&word, codes, 4);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(word), _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(1 << i)));
}

// Digits of 32 two-bit codes as bytes; for ternary codes, one more than the digit.
inline __m256i two_bits(const uint8_t* codes, __m256i invert) {
  const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m256i pairs = _mm256_or_si256(x, _mm256_slli_epi32(x, 6));
  const __m256i spread = _mm256_or_si256(pairs, _mm256_slli_epi32(pairs, 12));
  return _mm256_xor_si256(_mm256_and_si256(spread, _mm256_set1_epi8(3)), invert);
}

// The line indexes of one group for 32 columns.
inline __m256i indexes(const gemm_detail::TableShape& shape, const gemm_detail::TableCodes& codes, int64_t k0,
                       int64_t j) {
  const int64_t left = codes.depth - k0, count = left < shape.codes ? left : shape.codes;
  __m256i index = _mm256_setzero_si256();
  if (codes.bits == 1) {
    const uint8_t* row = codes.codes + k0 * codes.stride + j / 8;
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i, row += codes.stride) {  // the constants stay in registers
      if (i == count) break;
      index = _mm256_or_si256(index, one_bit(row, i));
    }
    return index;
  }
  const __m256i invert = _mm256_set1_epi8(shape.first < 0 ? 2 : 0);
  int surplus = 0;
  for (int64_t i = count - 1; i >= 0; --i) {
    const __m256i digit = two_bits(codes.codes + (k0 + i) * codes.stride + j / 4, invert);
    const __m256i twice = _mm256_add_epi8(index, index);
    index = _mm256_add_epi8(_mm256_add_epi8(twice, shape.base == 3 ? index : twice), digit);
    surplus = surplus * 3 + 1;
  }
  return shape.base == 3 ? _mm256_sub_epi8(index, _mm256_set1_epi8(static_cast<char>(surplus))) : index;
}

// Two columns in each 128-bit lane, widened to offsets: columns `low` and low + 1, and the two 16 further on.
inline void store_offsets(__m256i bytes, uint16_t* low) {
  const __m256i x = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
  const __m256i y = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm256_slli_epi16(x, 6));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low + 16 * gemm_detail::kTableFields), _mm256_slli_epi16(y, 6));
}

void offsets(const gemm_detail::TableShape& shape, const gemm_detail::TableCodes& codes, uint16_t* out) {
  for (int64_t j = 0; j < codes.columns; j += 32, out += 32 * gemm_detail::kTableFields) {
    __m256i x[8];
    for (int g = 0; g < 8; ++g) {
      const int64_t k0 = int64_t{g} * shape.codes;
      x[g] = g < shape.groups && k0 < codes.depth ? indexes(shape, codes, k0, j) : _mm256_setzero_si256();
    }
    // Rearranges the bytes of one group for 32 columns so that the 8 groups of a column are contiguous.
    for (int h = 0; h < 2; ++h) {
      __m256i pair[4];
      for (int g = 0; g < 4; ++g) {
        pair[g] = h == 0 ? _mm256_unpacklo_epi8(x[2 * g], x[2 * g + 1]) : _mm256_unpackhi_epi8(x[2 * g], x[2 * g + 1]);
      }
      const __m256i a = _mm256_unpacklo_epi16(pair[0], pair[1]), b = _mm256_unpacklo_epi16(pair[2], pair[3]);
      const __m256i c = _mm256_unpackhi_epi16(pair[0], pair[1]), d = _mm256_unpackhi_epi16(pair[2], pair[3]);
      uint16_t* to = out + 8 * h * gemm_detail::kTableFields;
      store_offsets(_mm256_unpacklo_epi32(a, b), to);
      store_offsets(_mm256_unpackhi_epi32(a, b), to + 2 * gemm_detail::kTableFields);
      store_offsets(_mm256_unpacklo_epi32(c, d), to + 4 * gemm_detail::kTableFields);
      store_offsets(_mm256_unpackhi_epi32(c, d), to + 6 * gemm_detail::kTableFields);
    }
  }
  _mm256_zeroupper();
}

// Transposes 8 lines of 8 lanes in place.
inline __attribute__((always_inline)) void transpose(__m256* x) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) x[i] = t[i];
}

// Lanes [lane, lane + 8) of one column.
inline __attribute__((always_inline)) __m256 load_sums(const gemm_detail::TableFinish& f, int64_t j, int64_t lane) {
  if (f.sums != nullptr) return _mm256_load_ps(f.sums + j * 16 + lane);
  const int64_t at = j * 32 + lane;
  __m256i x = _mm256_cvtepi16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(f.low + at)));
  if (f.high != nullptr) {
    const __m256i over = _mm256_cvtepi16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(f.high + at)));
    x = _mm256_add_epi32(x, _mm256_slli_epi32(over, 12));
  }
  return _mm256_cvtepi32_ps(x);
}

inline float sum_of(const gemm_detail::TableFinish& f, int64_t j, int64_t lane) {
  if (f.sums != nullptr) return f.sums[j * 16 + lane];
  const int64_t at = j * 32 + lane;
  return static_cast<float>(f.low[at] + (f.high != nullptr ? int32_t{f.high[at]} * 4096 : 0));
}

// The remaining columns, which do not fill a register.
void finish_rest(const gemm_detail::TableFinish& f, int64_t j) {
  for (; j < f.columns; ++j) {
    for (int64_t i = 0; i < f.rows; ++i) {
      float y = sum_of(f, j, i);
      if (f.row_scale != nullptr) {
        y *= f.column_scale != nullptr ? f.row_scale[i] * f.column_scale[j] : f.row_scale[i];
      } else if (f.column_scale != nullptr) {
        y *= f.column_scale[j];
      }
      if (f.bias != nullptr) y = y + f.bias[j];
      float& c = f.c[i * f.ldc + j];
      c = f.add ? c + y : y;
    }
  }
}

void finish(const gemm_detail::TableFinish& f) {
  const bool scaled = f.column_scale != nullptr || f.row_scale != nullptr;
  int64_t j = 0;
  for (; j + 8 <= f.columns; j += 8) {
    const __m256 scale = f.column_scale != nullptr ? _mm256_loadu_ps(f.column_scale + j) : _mm256_set1_ps(1);
    for (int64_t half = 0; half < f.rows; half += 8) {
      __m256 x[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) x[i] = load_sums(f, j + i, half);
      transpose(x);
#pragma GCC unroll 8
      for (int64_t i = 0; i < 8; ++i) {
        const int64_t row = half + i;
        if (row >= f.rows) break;
        __m256 y = x[i];
        if (scaled) {
          y = _mm256_mul_ps(y, f.row_scale == nullptr ? scale : _mm256_mul_ps(_mm256_set1_ps(f.row_scale[row]), scale));
        }
        if (f.bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(f.bias + j));
        float* c = f.c + row * f.ldc + j;
        if (f.add) y = _mm256_add_ps(_mm256_loadu_ps(c), y);
        _mm256_storeu_ps(c, y);
      }
    }
  }
  _mm256_zeroupper();
  finish_rest(f, j);
}

int32_t bound(const int16_t* a, int64_t depth) {
  alignas(64) uint16_t sums[32];
  Words::Reg sum = Words::times(Words::load(a), 0);
  for (int64_t k = 0; k < depth; ++k) {
    const Words::Reg x = Words::load(a + k * 32);
    sum = Words::add(sum, {_mm256_abs_epi16(x.low), _mm256_abs_epi16(x.high)});
  }
  Words::store(sums, sum);
  _mm256_zeroupper();
  int32_t max = 0;
  for (const uint16_t x : sums) max = x > max ? x : max;
  return max;
}

void carry(int16_t* low, int16_t* high, int64_t columns, bool first) {
  for (int64_t at = 0; at < columns * 32; at += 16) {
    __m256i* const to_low = reinterpret_cast<__m256i*>(low + at);
    __m256i* const to_high = reinterpret_cast<__m256i*>(high + at);
    const __m256i x = _mm256_load_si256(to_low);
    const __m256i over = _mm256_srai_epi16(_mm256_add_epi16(_mm256_srai_epi16(x, 11), _mm256_set1_epi16(1)), 1);
    _mm256_store_si256(to_low, _mm256_sub_epi16(x, _mm256_slli_epi16(over, 12)));
    _mm256_store_si256(to_high, first ? over : _mm256_add_epi16(_mm256_load_si256(to_high), over));
  }
  _mm256_zeroupper();
}

#pragma GCC pop_options
constexpr gemm_detail::TableKernel kKernel{
    offsets, {build_tables<Floats>, add_tables<Floats>}, {build_tables<Words>, add_tables<Words>}, finish, bound, carry,
    0.6};

}  // namespace

BITGRAD_DEFINE_GEMM(gemm_f32_table_avx2, gemm_detail::table_f32_supports(args),
                    gemm_detail::table_f32_cost(kKernel, args), gemm_detail::run_table_f32(kKernel, args))
BITGRAD_DEFINE_GEMM(gemm_s8_table_avx2, gemm_detail::table_i16_supports(args),
                    gemm_detail::table_i16_cost(kKernel, args), gemm_detail::run_table_i16(kKernel, args))

}  // namespace bitgrad::kernels::gemm_impl
