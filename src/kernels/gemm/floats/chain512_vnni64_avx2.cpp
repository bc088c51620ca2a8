// gemm_f32_s8_f32_vnni64_avx2: up to 2 rows times 4 or 2 panels in halves of 8 columns. Codes are cut out by shift and
// mask and become numbers by one fma, which is exact; one row of |q| <= 1 looks up q x.
#include "base/simd.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/chain512_vnni64.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kAhead = 4096;  // bytes

#include "kernels/gemm/floats/chain512_vnni64_loops.h"

template <int fields, Form form, int R, int P>
struct Panels {
  static constexpr bool kProducts = form == Form::kAtMostOne;  // q x is looked up in place of q
  static constexpr int kMask = (1 << (8 / fields)) - 1;

  const ChainPanelTile& t;
  int panel;
  __m256 chain[R][2 * P];  // halves of panels

  void open_group(int64_t) {}

  // q = factor u + lowest for the low bits u of eight lanes, in which VPERMPS reads three.
  [[gnu::always_inline]] __m256 numbers() const {
    const __m256i u = _mm256_and_si256(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kMask));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(u), _mm256_set1_ps(t.factor), _mm256_set1_ps(t.lowest));
  }

  [[gnu::always_inline]] __m256 value_of(__m256i line, int shift, int64_t at) const {
    const __m256i code = _mm256_and_si256(_mm256_srli_epi32(line, shift), _mm256_set1_epi32(kMask));
    __m256 q = _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(t.factor), _mm256_set1_ps(t.lowest));
    if constexpr (form == Form::kZero) q = _mm256_sub_ps(q, _mm256_loadu_ps(t.zero + at));
    q = _mm256_mul_ps(q, _mm256_loadu_ps(t.scale + at));
    if constexpr (form == Form::kOffset) q = _mm256_add_ps(q, _mm256_loadu_ps(t.offset + at));
    return q;
  }

  // The first `codes` of a line of each panel.
  [[gnu::always_inline]] void add_line(const uint8_t* b, const float* a, int64_t at, int codes) {
    constexpr int kWidth = 8 / fields;
    const __m256 number = numbers();
    if constexpr (R == 1) BITGRAD_UNROLL(int p = 0; p < P; ++p) _mm_prefetch(b + 64 * p + kAhead, _MM_HINT_T0);
#pragma GCC unroll 32
    for (int i = 0; i < 4 * fields; ++i) {
      if (i >= codes) break;
      __m256 x[R];
      BITGRAD_UNROLL(int r = 0; r < R; ++r) x[r] = _mm256_set1_ps(a[r * t.a_step + i]);
      if constexpr (kProducts) x[0] = _mm256_mul_ps(number, x[0]);
      BITGRAD_UNROLL(int h = 0; h < 2 * P; ++h) {
        const __m256i line = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 32 * h));
        const int shift = 8 * (i % 4) + i / 4 * kWidth;
        if constexpr (kProducts) {
          const __m256 product = _mm256_permutevar8x32_ps(x[0], _mm256_srli_epi32(line, shift));
          chain[0][h] = _mm256_fmadd_ps(_mm256_loadu_ps(t.scale + at + int64_t{8} * h), product, chain[0][h]);
          continue;
        }
        const __m256 y = value_of(line, shift, at + int64_t{8} * h);
        BITGRAD_UNROLL(int r = 0; r < R; ++r) chain[r][h] = _mm256_fmadd_ps(x[r], y, chain[r][h]);
      }
    }
  }

  [[gnu::always_inline]] void store(bool first) {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int h = 0; h < 2 * P; ++h) {
        float* const to = t.c + r * kPanelColumns + 16 * panel + 8 * h;
        _mm256_storeu_ps(to, first ? chain[r][h] : _mm256_add_ps(_mm256_loadu_ps(to), chain[r][h]));
        chain[r][h] = _mm256_setzero_ps();
      }
    }
  }

  [[gnu::always_inline]] void run() {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int h = 0; h < 2 * P; ++h) chain[r][h] = _mm256_setzero_ps();
    }
    walk_lines<fields>(t, panel, *this);
  }
};

template <int fields, Form form, int R>
void tile_rows(const ChainPanelTile& t) {
  constexpr int kPanels = R == 1 ? 4 : 2;
  int panel = 0;
  for (; panel + kPanels <= t.panels; panel += kPanels) Panels<fields, form, R, kPanels>{t, panel, {}}.run();
  for (; panel < t.panels; ++panel) Panels<fields, form, R, 1>{t, panel, {}}.run();
}

#pragma GCC pop_options

constexpr ChainPanelKernel kPanelKernel{2, &tile_bits<2>, {nullptr, &widen_halves_avx2}, 0.1, 0.025};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_f32_s8_f32_vnni64_avx2, gemm_detail::chain512_vnni64_supports(args),
                    gemm_detail::chain512_vnni64_cost(args, gemm_detail::kPanelKernel),
                    gemm_detail::chain512_vnni64_gemm(args, gemm_detail::kPanelKernel))

}  // namespace bitgrad::kernels::gemm_impl
