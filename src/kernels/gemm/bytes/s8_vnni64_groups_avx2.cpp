// Groups of B in layout vnni64 on AVX2. Up to 7 bits by VPMADDUBSW (unsigned B times signed A, pairs summed in 16
// bits), as many lines as fit before they are widened; 8 bits by VPMADDWD on the even and the odd bytes.
#include "base/simd.h"
#include "kernels/gemm/bytes/s8_vnni64_groups.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int kRows = 3;
constexpr int64_t kAhead = 4096;  // bytes

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

[[gnu::always_inline]] inline __m256i unit_of(const int8_t* a) {
  int32_t unit;
  __builtin_memcpy(&unit, a, 4);
  return _mm256_set1_epi32(unit);
}

// Half h (8 columns) of panel p.
template <int R, int P>
using Sums = __m256i[R][P][2];

template <int R, int P>
[[gnu::always_inline]] inline void clear(Sums<R, P>& sums) {
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) sums[r][p][0] = sums[r][p][1] = _mm256_setzero_si256();
  }
}

// Adds sum a u over `steps` lines.
template <int R, int P, int fields>
[[gnu::always_inline]] inline void add_bytes(const S8GroupsTile& t, const int8_t* a, const uint8_t* b, int64_t steps,
                                             int64_t batch, Sums<R, P>& acc) {
  constexpr int kWidth = 8 / fields;
  const __m256i mask = _mm256_set1_epi8(static_cast<char>((1 << kWidth) - 1)), ones = _mm256_set1_epi16(1);
  for (int64_t s = 0; s < steps;) {
    Sums<R, P> words;
    clear<R, P>(words);
    for (const int64_t end = steps - s < batch ? steps : s + batch; s < end;
         ++s, a += 4 * fields, b += int64_t{64} * t.panels) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        const __m256i closed[2] = {load(b + 64 * p), load(b + 64 * p + 32)};
        if constexpr (R == 1) _mm_prefetch(b + 64 * p + kAhead, _MM_HINT_T0);
        BITGRAD_UNROLL(int f = 0; f < fields; ++f) {
          BITGRAD_UNROLL(int h = 0; h < 2; ++h) {
            __m256i y = f == 0 ? closed[h] : _mm256_srli_epi16(closed[h], f * kWidth);
            if constexpr (fields > 1) y = _mm256_and_si256(y, mask);
            BITGRAD_UNROLL(int r = 0; r < R; ++r)
            words[r][p][h] =
                _mm256_add_epi16(words[r][p][h], _mm256_maddubs_epi16(y, unit_of(a + r * t.a_step + 4 * f)));
          }
        }
      }
    }
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        BITGRAD_UNROLL(int h = 0; h < 2; ++h)
        acc[r][p][h] = _mm256_add_epi32(acc[r][p][h], _mm256_madd_epi16(words[r][p][h], ones));
      }
    }
  }
}

// The same for B of 8 bits, whose pairs of products do not fit in 16 bits.
template <int R, int P>
[[gnu::always_inline]] inline void add_words(const S8GroupsTile& t, const int8_t* a, const uint8_t* b, int64_t steps,
                                             Sums<R, P>& acc) {
  const __m256i low_bytes = _mm256_set1_epi16(0x00FF);
  for (int64_t s = 0; s < steps; ++s, a += 4, b += int64_t{64} * t.panels) {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      const __m256i x = unit_of(a + r * t.a_step);
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        if constexpr (R == 1) _mm_prefetch(b + 64 * p + kAhead, _MM_HINT_T0);
        BITGRAD_UNROLL(int h = 0; h < 2; ++h) {
          const __m256i y = load(b + 64 * p + 32 * h);
          const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(y, low_bytes), even),
                                                    _mm256_madd_epi16(_mm256_srli_epi16(y, 8), odd));
          acc[r][p][h] = _mm256_add_epi32(acc[r][p][h], products);
        }
      }
    }
  }
}

template <int R, int P>
[[gnu::always_inline]] inline void finish_group(const S8GroupsTile& t, const GroupAt& group, int panel,
                                                const Sums<R, P>& acc) {
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    const int32_t codes = t.sums[r * t.groups + group.g];
    const __m256 of_row = _mm256_set1_ps(t.row_scale == nullptr ? 1.0f : t.row_scale[r * t.groups + group.g]);
    const auto by_row = [&](const float* params) {
      const __m256 x = _mm256_loadu_ps(params);
      return t.row_scale == nullptr ? x : _mm256_mul_ps(x, of_row);
    };
    BITGRAD_UNROLL(int p = 0; p < P; ++p) {
      BITGRAD_UNROLL(int h = 0; h < 2; ++h) {
        const int64_t column = 16 * (panel + p) + 8 * h, at = group.params + column;
        const __m256i total = t.shift != 0 ? _mm256_slli_epi32(acc[r][p][h], 1) : acc[r][p][h];
        const __m256i start = t.column_by == nullptr
                                  ? _mm256_set1_epi32(t.start[r * t.groups + group.g])
                                  : _mm256_mullo_epi32(_mm256_set1_epi32(codes), load(t.column_by + at));
        __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(total, start)), by_row(t.scale + at));
        if (t.offset != nullptr)
          y = _mm256_add_ps(y, _mm256_mul_ps(_mm256_set1_ps(static_cast<float>(codes)), by_row(t.offset + at)));
        float* const sum = t.t + r * kPanelColumns + column;
        _mm256_storeu_ps(sum, _mm256_add_ps(group.g == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(sum), y));
      }
    }
  }
}

// fields: 0 for B of 8 bits.
template <int R, int P, int fields>
[[gnu::always_inline]] inline void tile_panels(const S8GroupsTile& t, int panel) {
  constexpr int kFields = fields == 0 ? 1 : fields;
  const int64_t batch = lines_in_words(kFields, t.max), b_step = int64_t{64} * t.panels;
  const int8_t* a = t.a;
  const uint8_t* b = t.b + int64_t{64} * panel;
  for (GroupAt group{t, 0}; group.g < t.groups; group.next()) {
    const int64_t steps = group.steps();
    Sums<R, P> acc;
    clear<R, P>(acc);
    if constexpr (fields == 0)
      add_words<R, P>(t, a, b, steps, acc);
    else
      add_bytes<R, P, fields>(t, a, b, steps, batch, acc);
    finish_group<R, P>(t, group, panel, acc);
    a += steps * 4 * kFields;
    b += steps * b_step;
  }
}

template <int R, int fields>
void tile_rows(const S8GroupsTile& t) {
  int panel = 0;
  if constexpr (R == 1)
    for (; panel + 2 <= t.panels; panel += 2) tile_panels<1, 2, fields>(t, panel);
  for (; panel < t.panels; ++panel) tile_panels<R, 1, fields>(t, panel);
}

int32_t sum_of_row(const int8_t* row, int64_t count) {
  const __m256i ones = _mm256_set1_epi8(1), word_ones = _mm256_set1_epi16(1);
  __m256i sums = _mm256_setzero_si256();
  int64_t k = 0;
  for (; k + 32 <= count; k += 32)
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, load(row + k)), word_ones));
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums);
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  for (; k < count; ++k) sum += row[k];
  return sum;
}

using TileFunction = void (*)(const S8GroupsTile&);
template <int fields>
constexpr TileFunction kTiles[kRows] = {&tile_rows<1, fields>, &tile_rows<2, fields>, &tile_rows<3, fields>};

#pragma GCC pop_options

void groups_tile(int rows, int bits, const S8GroupsTile& t) {
  const int fields = vnni_fields(bits);
  const TileFunction* const functions = bits == 8     ? kTiles<0>
                                        : fields == 1 ? kTiles<1>
                                        : fields == 2 ? kTiles<2>
                                        : fields == 4 ? kTiles<4>
                                                      : kTiles<8>;
  functions[rows - 1](t);
}
constexpr S8GroupsKernel kGroupsKernel{kRows, &groups_tile, &sum_of_row, {nullptr, &widen_halves_avx2}, 60, 0.1};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_vnni64_groups_avx2, gemm_detail::s8_vnni64_groups_supports(args),
                    gemm_detail::s8_vnni64_groups_cost(args, gemm_detail::kGroupsKernel),
                    gemm_detail::s8_vnni64_groups_gemm(args, gemm_detail::kGroupsKernel))

}  // namespace bitgrad::kernels::gemm_impl
