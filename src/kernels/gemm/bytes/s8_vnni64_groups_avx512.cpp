// Groups of B in layout vnni64 by VPDPBUSD: fields are opened in registers. One row walks four panels at once and waits
// for memory, which is read in order: the processor fetches ahead by itself, and prefetches cost speed (Zen 4, int8 by
// 15 %). Tiles of up to six rows share the opened codes of two panels.
#include "base/simd.h"
#include "kernels/gemm/bytes/s8_vnni64_groups.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

// The sums of one group: start, or c - zb times the sum of A's codes, is added to f sum a u.
template <int R, int P>
[[gnu::always_inline]] inline void finish_group(const S8GroupsTile& t, int64_t g, int64_t at, __m512i (&acc)[R][P],
                                                __m512 (&sum)[R][P]) {
  __m512 scale[P];
  if (t.halves != nullptr) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p)
    scale[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.halves + at + 16 * p)));
  } else {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) scale[p] = _mm512_loadu_ps(t.scale + at + 16 * p);
  }
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    const int32_t codes = t.sums[r * t.groups + g];
    const __m512 of_row = _mm512_set1_ps(t.row_scale == nullptr ? 1.0f : t.row_scale[r * t.groups + g]);
    BITGRAD_UNROLL(int p = 0; p < P; ++p) {
      __m512i total = acc[r][p];
      if (t.shift != 0) total = _mm512_slli_epi32(total, 1);
      const __m512i start = t.column_by == nullptr ? _mm512_set1_epi32(t.start[r * t.groups + g])
                                                   : _mm512_mullo_epi32(_mm512_set1_epi32(codes),
                                                                        _mm512_loadu_si512(t.column_by + at + 16 * p));
      const auto by_row = [&](__m512 x) { return t.row_scale == nullptr ? x : _mm512_mul_ps(x, of_row); };
      __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(total, start)), by_row(scale[p]));
      if (t.offset != nullptr)
        y = _mm512_add_ps(y, _mm512_mul_ps(_mm512_set1_ps(static_cast<float>(codes)),
                                           by_row(_mm512_loadu_ps(t.offset + at + 16 * p))));
      sum[r][p] = _mm512_add_ps(sum[r][p], y);
    }
  }
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
  int64_t at = 16 * panel;
  __m512 sum[R][P];
  BITGRAD_UNROLL(int r = 0; r < R; ++r) { BITGRAD_UNROLL(int p = 0; p < P; ++p) sum[r][p] = _mm512_setzero_ps(); }
  for (int64_t g = 0; g < t.groups; ++g, at += kPanelColumns) {
    __m512i acc[kSets][R][P];
    BITGRAD_UNROLL(int s = 0; s < kSets; ++s) {
      BITGRAD_UNROLL(int r = 0; r < R; ++r) {
        BITGRAD_UNROLL(int p = 0; p < P; ++p) acc[s][r][p] = _mm512_setzero_si512();
      }
    }
    const int64_t steps = g + 1 == t.groups ? t.last_steps : t.steps;
    for (int64_t s = 0; s < steps; ++s, a += 4 * fields, b += b_step) {
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
    finish_group<R, P>(t, g, at, acc[0], sum);
  }
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) _mm512_storeu_ps(t.t + r * kPanelColumns + 16 * (panel + p), sum[r][p]);
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

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_s8_s8_i32_vnni64_groups_avx512, gemm_detail::s8_vnni64_groups_supports(args),
                    gemm_detail::s8_vnni64_groups_cost(args, gemm_detail::kGroupsKernel),
                    gemm_detail::s8_vnni64_groups_gemm(args, gemm_detail::kGroupsKernel))

}  // namespace bitgrad::kernels::gemm_impl
