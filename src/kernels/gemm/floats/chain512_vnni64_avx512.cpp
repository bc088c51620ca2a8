// gemm_f32_s8_f32_vnni64_avx512: up to 4 rows times 4 panels. Codes of at most 4 bits are looked up in a register,
// whose entries repeat where a field has fewer bits: VPERMPS reads the low 4 bits of a lane. One row of |q| <= 1 looks
// up q x.
#include "base/simd.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/chain512_vnni64.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kAhead = 4096;  // bytes

#include "kernels/gemm/floats/chain512_vnni64_loops.h"

struct Table {
  __m512 values, factor, lowest;
};

template <int fields, Form form, int R, int P>
struct Panels {
  static constexpr bool kProducts = form == Form::kAtMostOne;  // q x is looked up in place of q

  const ChainPanelTile& t;
  const Table& table;
  int panel;
  __m512 chain[R][P], scale[P];

  [[gnu::always_inline]] void open_group(int64_t at) {
    if (t.halves != nullptr) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p)
      scale[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.halves + at + int64_t{16} * p)));
    } else {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) scale[p] = _mm512_loadu_ps(t.scale + at + int64_t{16} * p);
    }
  }

  [[gnu::always_inline]] __m512 value_of(__m512i moved, int p, int64_t at) const {
    __m512 q;
    if constexpr (fields > 1) {
      q = _mm512_permutexvar_ps(moved, table.values);
    } else {
      q = _mm512_cvtepi32_ps(_mm512_and_si512(moved, _mm512_set1_epi32(0xFF)));
      q = _mm512_fmadd_ps(q, table.factor, table.lowest);
    }
    if constexpr (form == Form::kZero) q = _mm512_sub_ps(q, _mm512_loadu_ps(t.zero + at + int64_t{16} * p));
    q = _mm512_mul_ps(q, scale[p]);
    if constexpr (form == Form::kOffset) q = _mm512_add_ps(q, _mm512_loadu_ps(t.offset + at + int64_t{16} * p));
    return q;
  }

  // The first `codes` of a line of each panel.
  [[gnu::always_inline]] void add_line(const uint8_t* b, const float* a, int64_t at, int codes) {
    constexpr int kWidth = 8 / fields;
    __m512i line[P];
    BITGRAD_UNROLL(int p = 0; p < P; ++p) {
      line[p] = _mm512_loadu_si512(b + 64 * p);
      if constexpr (R == 1) _mm_prefetch(b + 64 * p + kAhead, _MM_HINT_T0);
    }
#pragma GCC unroll 32
    for (int i = 0; i < 4 * fields; ++i) {
      if (i >= codes) break;
      const auto shift = static_cast<unsigned>(8 * (i % 4) + i / 4 * kWidth);
      __m512 x[R];
      BITGRAD_UNROLL(int r = 0; r < R; ++r) x[r] = _mm512_set1_ps(a[r * t.a_step + i]);
      if constexpr (kProducts) x[0] = _mm512_mul_ps(table.values, x[0]);
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        const __m512i moved = _mm512_srli_epi32(line[p], shift);
        if constexpr (kProducts) {
          chain[0][p] = _mm512_fmadd_ps(scale[p], _mm512_permutexvar_ps(moved, x[0]), chain[0][p]);
          continue;
        }
        const __m512 y = value_of(moved, p, at);
        BITGRAD_UNROLL(int r = 0; r < R; ++r) chain[r][p] = _mm512_fmadd_ps(x[r], y, chain[r][p]);
      }
    }
  }

  [[gnu::always_inline]] void store(bool first) {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) {
        float* const to = t.c + r * kPanelColumns + int64_t{16} * (panel + p);
        _mm512_storeu_ps(to, first ? chain[r][p] : _mm512_add_ps(_mm512_loadu_ps(to), chain[r][p]));
        chain[r][p] = _mm512_setzero_ps();
      }
    }
  }

  [[gnu::always_inline]] void run() {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) { BITGRAD_UNROLL(int p = 0; p < P; ++p) chain[r][p] = _mm512_setzero_ps(); }
    walk_lines<fields>(t, panel, *this);
  }
};

template <int fields, Form form, int R>
void tile_rows(const ChainPanelTile& t) {
  alignas(64) float values[16];
  for (int i = 0; i < 16; ++i) values[i] = t.factor * static_cast<float>(i & ((1 << (8 / fields)) - 1)) + t.lowest;
  const Table table{_mm512_load_ps(values), _mm512_set1_ps(t.factor), _mm512_set1_ps(t.lowest)};
  int panel = 0;
  for (; panel + 4 <= t.panels; panel += 4) Panels<fields, form, R, 4>{t, table, panel, {}, {}}.run();
  for (; panel < t.panels; ++panel) Panels<fields, form, R, 1>{t, table, panel, {}, {}}.run();
}

#pragma GCC pop_options

constexpr ChainPanelKernel kPanelKernel{
    4, &tile_bits<4>, {&transpose16_avx512, &widen_halves_avx2, true}, 0.035, 0.012};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_f32_s8_f32_vnni64_avx512, gemm_detail::chain512_vnni64_supports(args),
                    gemm_detail::chain512_vnni64_cost(args, gemm_detail::kPanelKernel),
                    gemm_detail::chain512_vnni64_gemm(args, gemm_detail::kPanelKernel))

}  // namespace bitgrad::kernels::gemm_impl
