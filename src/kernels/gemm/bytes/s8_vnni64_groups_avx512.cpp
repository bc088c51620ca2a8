// Groups of B in layout vnni64 by VPDPBUSD: fields are opened in registers. One row walks four panels at once and waits
// for memory, which is read in order: the processor fetches ahead by itself, and prefetches cost speed (Zen 4, int8 by
// 15 %). Tiles of up to six rows share the opened codes of two panels. One or two rows times bits look up sums of four
// codes of A instead (Wei et al. 2024, "T-MAC"), by VPERMB: the tables of the four columns of a unit in one register.
#include "base/simd.h"
#include "kernels/gemm/bytes/s8_vnni64_groups.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

// The scales of P panels, from `at` on.
template <int P>
[[gnu::always_inline]] inline void load_scales(const S8GroupsTile& t, int64_t at, __m512 (&scale)[P]) {
  if (t.halves != nullptr) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p)
    scale[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.halves + at + int64_t{16} * p)));
  } else {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) scale[p] = _mm512_loadu_ps(t.scale + at + int64_t{16} * p);
  }
}

// Group g of row r: sum += float(acc) * s (+ float(S) * m).
template <int P>
[[gnu::always_inline]] inline void add_group(const S8GroupsTile& t, int r, const GroupAt& group,
                                             const __m512i (&acc)[P], const __m512 (&scale)[P], __m512 (&sum)[P]) {
  const __m512 of_row = _mm512_set1_ps(t.row_scale == nullptr ? 1.0f : t.row_scale[r * t.groups + group.g]);
  const auto by_row = [&](__m512 x) { return t.row_scale == nullptr ? x : _mm512_mul_ps(x, of_row); };
  BITGRAD_UNROLL(int p = 0; p < P; ++p) {
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[p]), by_row(scale[p]));
    if (t.offset != nullptr)
      y = _mm512_add_ps(y, _mm512_mul_ps(_mm512_set1_ps(static_cast<float>(t.sums[r * t.groups + group.g])),
                                         by_row(_mm512_loadu_ps(t.offset + group.params + int64_t{16} * p))));
    sum[p] = _mm512_add_ps(sum[p], y);
  }
}

// What the sums of group g of row r begin with: (c - zb) S.
template <int P>
[[gnu::always_inline]] inline void start_group(const S8GroupsTile& t, int r, const GroupAt& group, __m512i (&acc)[P]) {
  const int64_t i = r * t.groups + group.g;
  BITGRAD_UNROLL(int p = 0; p < P; ++p)
  acc[p] = t.column_by == nullptr
               ? _mm512_set1_epi32(t.start[i])
               : _mm512_mullo_epi32(_mm512_set1_epi32(t.sums[i]),
                                    _mm512_loadu_si512(t.column_by + group.params + int64_t{16} * p));
}

// f acc + (c - zb) S, for sums that did not begin with it.
template <int P>
[[gnu::always_inline]] inline void shift_and_start(const S8GroupsTile& t, int r, const GroupAt& group,
                                                   __m512i (&acc)[P]) {
  __m512i start[P];
  start_group<P>(t, r, group, start);
  BITGRAD_UNROLL(int p = 0; p < P; ++p) acc[p] = _mm512_add_epi32(_mm512_slli_epi32(acc[p], t.shift), start[p]);
}

// R rows times P panels from `panel` on.
template <int R, int P, int fields>
[[gnu::always_inline]] inline void tile_panels(const S8GroupsTile& t, int panel) {
  constexpr int kWidth = 8 / fields, kSets = R == 1 && fields > 1 ? 2 : 1;
  // Of many fields every second one is not moved to the bottom of the byte: it is 2^kWidth times as large, and so is
  // its set of sums (groups_fit_int32). A row of 4-bit codes waits for memory, and tiles of rows for products: not
  // theirs.
  constexpr int kStays = kSets == 2 && fields > 2 ? 2 : 1;
  const __m512i mask[2] = {_mm512_set1_epi8(static_cast<char>((1 << kWidth) - 1)),
                           _mm512_set1_epi8(static_cast<char>(((1 << kWidth) - 1) << kWidth))};
  const int64_t b_step = int64_t{64} * t.panels;
  const int8_t* a = t.a;
  const uint8_t* b = t.b + int64_t{64} * panel;
  __m512 sum[R][P], scale[P];
  BITGRAD_UNROLL(int r = 0; r < R; ++r) { BITGRAD_UNROLL(int p = 0; p < P; ++p) sum[r][p] = _mm512_setzero_ps(); }
  for (GroupAt group{t, int64_t{16} * panel}; group.g < t.groups; group.next()) {
    __m512i acc[kSets][R][P];
    BITGRAD_UNROLL(int s = 0; s < kSets; ++s) {
      BITGRAD_UNROLL(int r = 0; r < R; ++r) {
        BITGRAD_UNROLL(int p = 0; p < P; ++p) acc[s][r][p] = _mm512_setzero_si512();
      }
    }
    if constexpr (fields != 8) {  // bits alone may have a shift
      BITGRAD_UNROLL(int r = 0; r < R; ++r) start_group<P>(t, r, group, acc[0][r]);
    }
    for (int64_t s = group.steps(); s > 0; --s, a += ptrdiff_t{4} * fields, b += b_step) {
      __m512i closed[P];
      BITGRAD_UNROLL(int p = 0; p < P; ++p) closed[p] = _mm512_loadu_si512(b + ptrdiff_t{64} * p);
      BITGRAD_UNROLL(int f = 0; f < fields; ++f) {
        __m512i y[P];
        const int stays = f % kStays;
        BITGRAD_UNROLL(int p = 0; p < P; ++p) {
          y[p] = f == stays ? closed[p] : _mm512_srli_epi16(closed[p], (f - stays) * kWidth);
          if constexpr (fields > 1) y[p] = _mm512_and_si512(y[p], mask[stays]);
        }
        BITGRAD_UNROLL(int r = 0; r < R; ++r) {
          int32_t unit;
          __builtin_memcpy(&unit, a + r * t.a_step + 4 * f, 4);
          const __m512i x = _mm512_set1_epi32(unit);
          BITGRAD_UNROLL(int p = 0; p < P; ++p)
          acc[f % kSets][r][p] = _mm512_dpbusd_epi32(acc[f % kSets][r][p], y[p], x);
        }
      }
    }
    if constexpr (kSets == 2) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        const __m512i other = acc[kSets - 1][0][p];
        acc[0][0][p] = _mm512_add_epi32(acc[0][0][p], kStays == 2 ? _mm512_srai_epi32(other, kWidth) : other);
      }
    }
    if (R > 1 || group.of_param == 0) load_scales<P>(t, group.params, scale);
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      if constexpr (fields == 8) shift_and_start<P>(t, r, group, acc[0][r]);
      add_group<P>(t, r, group, acc[0][r], scale, sum[r]);
    }
  }
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p)
    _mm512_storeu_ps(t.t + r * kPanelColumns + int64_t{16} * (panel + p), sum[r][p]);
  }
}

template <int R, int fields>
void tile_rows(const S8GroupsTile& t) {
  int panel = 0;
  if constexpr (R == 1) {
    if (t.panels == 4) return tile_panels<1, 4, fields>(t, 0);
  }
  for (; panel + 2 <= t.panels; panel += 2) tile_panels<R, 2, fields>(t, panel);
  if (panel < t.panels) tile_panels<R, 1, fields>(t, panel);
}

int32_t sum_of_row(const int8_t* row, int64_t count) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t k = 0; k < count; k += 64) {
    const __mmask64 keep = count - k >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - k)) - 1;
    sum = _mm512_dpbusd_epi32(sum, ones, _mm512_maskz_loadu_epi8(keep, row + k));
  }
  return _mm512_reduce_add_epi32(sum);
}

using TileFunction = void (*)(const S8GroupsTile&);
template <int fields>
constexpr TileFunction kRows[kS8GroupsRows] = {&tile_rows<1, fields>, &tile_rows<2, fields>, &tile_rows<3, fields>,
                                               &tile_rows<4, fields>, &tile_rows<5, fields>, &tile_rows<6, fields>};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")

// Tables of one line of A: for each half of a byte of B, which holds four codes of one of the four columns of its
// unit, all sums t of A's four codes there, in [-512, 508], as t & 7 and t >> 3: [half][2][column][16]. Two of t >> 3
// still fit in a byte.
constexpr int64_t kTableBytes = 256;
// Bytes that are fetched ahead into L2. Look-ups take about as long as reading, so that the processor, which fetches
// wider codes ahead by itself in time, has too few lines on the way. Prefetches past the end of B are wasted,
// but never fault.
constexpr int64_t kAhead = 8192;

void make_tables(const int8_t* row, int64_t steps, uint8_t* out) {
  // Sum n takes in field f if bit f of n is set; 32 words hold two columns.
  constexpr __mmask32 kTakes[4] = {0xAAAAAAAA, 0xCCCCCCCC, 0xF0F0F0F0, 0xFF00FF00};
  const __m512i column = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);  // 0, 1 of a pair
  const __m512i low_bits = _mm512_set1_epi16(7);
  for (; steps > 0; --steps, row += 32) {
    const __m512i words = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
    BITGRAD_UNROLL(int half = 0; half < 2; ++half, out += kTableBytes / 2) {
      BITGRAD_UNROLL(int pair = 0; pair < 2; ++pair) {
        __m512i sum = _mm512_setzero_si512();
        BITGRAD_UNROLL(int f = 0; f < 4; ++f) {
          const __m512i from =
              _mm512_add_epi16(column, _mm512_set1_epi16(static_cast<int16_t>(16 * half + 4 * f + 2 * pair)));
          sum = _mm512_add_epi16(sum, _mm512_maskz_permutexvar_epi16(kTakes[f], from, words));
        }
        auto* const to = reinterpret_cast<__m256i*>(out + ptrdiff_t{32} * pair);
        _mm256_storeu_si256(to, _mm512_cvtepi16_epi8(_mm512_and_si512(sum, low_bits)));
        _mm256_storeu_si256(to + 2, _mm512_cvtepi16_epi8(_mm512_srai_epi16(sum, 3)));
      }
    }
  }
}

// One row times P panels from `panel` on.
template <int P>
[[gnu::always_inline]] inline void look_up_panels(const S8GroupsTile& t, int panel) {
  constexpr int kAtOnce = P < 2 ? 1 : 2;  // panels whose instructions are mixed
  const __m512i half = _mm512_set1_epi8(15), column = _mm512_set1_epi32(0x30201000);
  const __m512i ones = _mm512_set1_epi8(static_cast<char>(1 << t.shift)), eights = _mm512_slli_epi16(ones, 3);
  const int64_t b_step = int64_t{64} * t.panels;
  const uint8_t *table = t.tables, *b = t.b + int64_t{64} * panel;
  __m512 sum[P], scale[P];
  BITGRAD_UNROLL(int p = 0; p < P; ++p) sum[p] = _mm512_setzero_ps();
  for (GroupAt group{t, int64_t{16} * panel}; group.g < t.groups; group.next()) {
    if (group.of_param == 0) load_scales<P>(t, group.params, scale);
    __m512i acc[P];
    start_group<P>(t, 0, group, acc);
    for (int64_t s = group.steps(); s > 0; --s, table += kTableBytes, b += b_step) {
      const __m512i low[2] = {_mm512_loadu_si512(table), _mm512_loadu_si512(table + 128)};
      const __m512i high[2] = {_mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 192)};
      BITGRAD_UNROLL(int p = 0; p < P; ++p) _mm_prefetch(b + ptrdiff_t{64} * p + kAhead, _MM_HINT_T1);
      BITGRAD_UNROLL(int q = 0; q < P; q += kAtOnce) {
        __m512i codes[kAtOnce], index[2][kAtOnce], low_sum[kAtOnce], high_sum[kAtOnce];
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) codes[p] = _mm512_loadu_si512(b + ptrdiff_t{64} * (q + p));
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) index[1][p] = _mm512_srli_epi16(codes[p], 4);
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) {  // x & half | column
          index[0][p] = _mm512_ternarylogic_epi32(codes[p], half, column, 0xEA);
          index[1][p] = _mm512_ternarylogic_epi32(index[1][p], half, column, 0xEA);
        }
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) {
          low_sum[p] = _mm512_add_epi8(_mm512_permutexvar_epi8(index[0][p], low[0]),
                                       _mm512_permutexvar_epi8(index[1][p], low[1]));
          high_sum[p] = _mm512_add_epi8(_mm512_permutexvar_epi8(index[0][p], high[0]),
                                        _mm512_permutexvar_epi8(index[1][p], high[1]));
        }
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) acc[q + p] = _mm512_dpbusd_epi32(acc[q + p], low_sum[p], ones);
        BITGRAD_UNROLL(int p = 0; p < kAtOnce; ++p) acc[q + p] = _mm512_dpbusd_epi32(acc[q + p], eights, high_sum[p]);
      }
    }
    add_group<P>(t, 0, group, acc, scale, sum);
  }
  BITGRAD_UNROLL(int p = 0; p < P; ++p) _mm512_storeu_ps(t.t + int64_t{16} * (panel + p), sum[p]);
}

void table_tile(int /*rows: 1*/, int /*bits: 1*/, const S8GroupsTile& t) {
  if (t.panels == 4) return look_up_panels<4>(t, 0);
  for (int panel = 0; panel < t.panels; ++panel) look_up_panels<1>(t, panel);
}

#pragma GCC pop_options
#pragma GCC pop_options

void groups_tile(int rows, int bits, const S8GroupsTile& t) {
  const int fields = vnni_fields(bits);
  const TileFunction* const functions = fields == 1   ? kRows<1>
                                        : fields == 2 ? kRows<2>
                                        : fields == 4 ? kRows<4>
                                                      : kRows<8>;
  functions[rows - 1](t);
}
constexpr S8GroupsKernel kGroupsKernel{
    kS8GroupsRows, &groups_tile, &sum_of_row, {&transpose16_avx512, &widen_halves_avx2, true}, 250, 0.04};
constexpr S8GroupsKernel kTableKernel{
    1,           &table_tile, &sum_of_row, {&transpose16_avx512, &widen_halves_avx2, true}, 175, 0.03,
    kTableBytes, 6,           &make_tables};

// More rows are as fast in tiles, which need no tables.
bool tables_support(const GemmArgs& args) {
  return args.m <= 2 && args.b.dtype.bits() == 1 && s8_vnni64_groups_supports(args);
}

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_vnni64_groups_avx512, gemm_detail::s8_vnni64_groups_supports(args),
                    gemm_detail::s8_vnni64_groups_cost(args, gemm_detail::kGroupsKernel),
                    gemm_detail::s8_vnni64_groups_gemm(args, gemm_detail::kGroupsKernel))
BITGRAD_DEFINE_GEMM(gemm_s8_b1_i32_vnni64_tables_avx512, gemm_detail::tables_support(args),
                    gemm_detail::s8_vnni64_groups_cost(args, gemm_detail::kTableKernel),
                    gemm_detail::s8_vnni64_groups_gemm(args, gemm_detail::kTableKernel))

}  // namespace bitgrad::kernels::gemm_impl
