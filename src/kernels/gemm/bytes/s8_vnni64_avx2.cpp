// Small integers in layout vnni64 by VPMADDUBSW (unsigned B times signed A, pairs summed in 16 bits): 32 multiply-adds
// per instruction. B has at most 7 bits, so a pair is at most 2 * 127 * 128 and never saturates. With narrower B,
// several units are summed in 16 bits before they are widened.
#include "base/simd.h"
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int kRows = 3;

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

// R rows times one panel, two registers of 8 columns. The sum of `batch` units fits in 16 bits.
template <int R>
void tile_panel(const S8PanelTile& t, const uint8_t* b, int64_t b_step, int64_t batch, int32_t* out) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[R][2];
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int h = 0; h < 2; ++h)
    sums[r][h] = t.first ? _mm256_setzero_si256() : load(out + r * kS8PanelColumns + 8 * h);
  }
  const int8_t* a = t.a;
  for (int64_t u = 0; u < t.units; u += batch) {
    __m256i words[R][2];
    BITGRAD_UNROLL(int r = 0; r < R; ++r) words[r][0] = words[r][1] = _mm256_setzero_si256();
    const int64_t count = t.units - u < batch ? t.units - u : batch;
    for (int64_t i = 0; i < count; ++i, a += 4, b += b_step) {
      const __m256i low = load(b), high = load(b + 32);
      BITGRAD_UNROLL(int r = 0; r < R; ++r) {
        int32_t unit;
        __builtin_memcpy(&unit, a + r * t.a_step, 4);
        const __m256i x = _mm256_set1_epi32(unit);
        words[r][0] = _mm256_add_epi16(words[r][0], _mm256_maddubs_epi16(low, x));
        words[r][1] = _mm256_add_epi16(words[r][1], _mm256_maddubs_epi16(high, x));
      }
    }
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int h = 0; h < 2; ++h)
      sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(words[r][h], ones));
    }
  }
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int h = 0; h < 2; ++h) store(out + r * kS8PanelColumns + 8 * h, sums[r][h]);
  }
}

template <int fields>
void open_fields(const uint8_t* in, int64_t steps, int64_t panels, uint8_t* out) {
  constexpr int kWidth = 8 / fields;
  const __m256i mask = _mm256_set1_epi8(static_cast<char>((1 << kWidth) - 1));
  for (int64_t s = 0; s < steps; ++s) {
    for (int64_t p = 0; p < panels; ++p, in += 64) {
      const __m256i low = load(in), high = load(in + 32);
      BITGRAD_UNROLL(int f = 0; f < fields; ++f) {
        uint8_t* const to = out + ((s * fields + f) * panels + p) * 64;
        store(to, _mm256_and_si256(_mm256_srli_epi16(low, f * kWidth), mask));
        store(to + 32, _mm256_and_si256(_mm256_srli_epi16(high, f * kWidth), mask));
      }
    }
  }
}

int32_t sum_bytes(const int8_t* row, int64_t count) {
  const __m256i ones = _mm256_set1_epi8(1), word_ones = _mm256_set1_epi16(1);
  __m256i sums = _mm256_setzero_si256();
  int64_t k = 0;
  for (; k + 32 <= count; k += 32) {
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, load(row + k)), word_ones));
  }
  int32_t lanes[8];
  store(lanes, sums);
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  for (; k < count; ++k) sum += row[k];
  return sum;
}

#pragma GCC pop_options

void tile(int rows, int panels, int max, const S8PanelTile& t) {
  constexpr void (*kTiles[kRows])(const S8PanelTile&, const uint8_t*, int64_t, int64_t, int32_t*) = {
      &tile_panel<1>, &tile_panel<2>, &tile_panel<3>};
  const int64_t batch = INT16_MAX / (2 * 128 * max);
  for (int p = 0; p < panels; ++p)
    kTiles[rows - 1](t, t.b + 64 * p, 64 * static_cast<int64_t>(panels), batch, t.sums + kPanelRows * p);
}
void open(const uint8_t* in, int64_t steps, int64_t panels, int fields, uint8_t* out) {
  (fields == 2 ? &open_fields<2> : fields == 4 ? &open_fields<4> : &open_fields<8>)(in, steps, panels, out);
}
constexpr S8PanelKernel kKernel{
    kRows, 7, &tile, false, 0, nullptr, &open, &sum_bytes, {{110, 104, 95, 81, 71, 58, 46, 1}, 0.03}};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_avx2, false, 0)
BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_t_avx2, true, 0)

}  // namespace bitgrad::kernels::gemm_impl
