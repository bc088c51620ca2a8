// Small integers in layout vnni64 by VPDPBUSD (unsigned B times signed A, four products per lane, no saturation): 64
// multiply-adds per instruction. Tiles of 6 rows x 64 columns use 24 registers for sums, 4 for B and one for A.
#include "base/simd.h"
#include "kernels/gemm/bytes/s8_vnni64.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,prfchw")

#define BITGRAD_UNROLL _Pragma("GCC unroll 8") for

namespace bitgrad::kernels::gemm_detail {
namespace {

// One unit of k.
template <int R, int P>
[[gnu::always_inline]] inline void add_unit(const int8_t* a, int64_t a_step, const uint8_t* b, __m512i (&sums)[R][P]) {
  __m512i y[P];
  BITGRAD_UNROLL(int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(b + 64 * p);
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    int32_t unit;
    __builtin_memcpy(&unit, a + r * a_step, 4);
    const __m512i x = _mm512_set1_epi32(unit);
    BITGRAD_UNROLL(int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], y[p], x);
  }
}

template <int R, int P>
[[gnu::always_inline]] inline void add_units(const S8PanelTile& t, __m512i (&sums)[R][P]) {
  const int8_t* a = t.a;
  const uint8_t *b = t.b, *ahead = t.ahead;
  const float* c = t.c_ahead;
  int64_t u = 0, c_lines = t.c_ahead_rows * P;
  for (; u + 4 <= t.units; u += 4) {
    for (int64_t line = 0; line < t.ahead_lines; ++line, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
    // Prefetches one line of C at a time: more at once would make the loads of A and B wait for fill buffers.
    if (c_lines > 0) {
      __builtin_prefetch(c, 1);
      c += 16;
      if (--c_lines % P == 0) c += t.ldc - 16 * P;
    }
    BITGRAD_UNROLL(int i = 0; i < 4; ++i) add_unit<R, P>(a + 4 * i, t.a_step, b + i * P * 64, sums);
    a += 16;
    b += 4 * P * 64;
  }
  for (; u < t.units; ++u, a += 4, b += P * 64) add_unit<R, P>(a, t.a_step, b, sums);
}

// The finished integers, with corrections applied.
template <int R, int P>
[[gnu::always_inline]] inline void correct(const S8PanelTile& t, __m512i (&sums)[R][P]) {
  const __m128i shift = _mm_cvtsi32_si128(t.shift);
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    const __m512i add = _mm512_set1_epi32(t.row_add[r]);
    BITGRAD_UNROLL(int p = 0; p < P; ++p) sums[r][p] = _mm512_add_epi32(_mm512_sll_epi32(sums[r][p], shift), add);
  }
  const auto add_products = [&](const int32_t* rows, const int32_t* columns) __attribute__((always_inline)) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) {
      const __m512i y = _mm512_loadu_si512(columns + 16 * p);
      BITGRAD_UNROLL(int r = 0; r < R; ++r) {
        sums[r][p] = _mm512_add_epi32(sums[r][p], _mm512_mullo_epi32(_mm512_set1_epi32(rows[r]), y));
      }
    }
  };
  if (t.column_by != nullptr) add_products(t.row_by, t.column_by);
  if (t.column_sums != nullptr) add_products(t.row_of_sums, t.column_sums);
}

template <int R, int P>
[[gnu::always_inline]] inline void store_floats(const S8PanelTile& t, const __m512i (&sums)[R][P]) {
  BITGRAD_UNROLL(int p = 0; p < P; ++p) {
    const int64_t left = t.columns - 16 * p;
    const __mmask16 keep = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    const __m512 sb = _mm512_loadu_ps(t.sb + 16 * p);
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      float* c = t.c + r * t.ldc + 16 * p;
      __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][p]), _mm512_mul_ps(_mm512_set1_ps(t.sa[r]), sb));
      if (t.bias != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(t.bias + 16 * p));
      if (t.accumulate) y = _mm512_add_ps(_mm512_maskz_loadu_ps(keep, c), y);
      _mm512_mask_storeu_ps(c, keep, y);
    }
  }
}

template <int R, int P>
[[gnu::always_inline]] inline void load_sums(const S8PanelTile& t, __m512i (&sums)[R][P]) {
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p)
    sums[r][p] = t.first ? _mm512_setzero_si512() : _mm512_loadu_si512(t.sums + r * kS8PanelColumns + 16 * p);
  }
}

template <int R, int P>
[[gnu::always_inline]] inline void finish(const S8PanelTile& t, __m512i (&sums)[R][P]) {
  if (t.direct) {
    correct<R, P>(t, sums);
    return store_floats<R, P>(t, sums);
  }
  BITGRAD_UNROLL(int r = 0; r < R; ++r) {
    BITGRAD_UNROLL(int p = 0; p < P; ++p) _mm512_storeu_si512(t.sums + r * kS8PanelColumns + 16 * p, sums[r][p]);
  }
}

template <int R, int P>
void tile_vnni(const S8PanelTile& t) {
  __m512i sums[R][P];
  load_sums<R, P>(t, sums);
  add_units<R, P>(t, sums);
  finish<R, P>(t, sums);
}

// Unpacks fields in registers. Uses two sets of sums where the dot products would otherwise wait for each other.
template <int R, int fields>
void tile_few(const S8PanelTile& t) {
  constexpr int P = kVnniPanels, kWidth = 8 / fields, kSets = R <= 2 ? 2 : 1;
  constexpr int64_t kAhead = 4096;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kWidth) - 1));
  __m512i sums[kSets][R][P];
  load_sums<R, P>(t, sums[0]);
  if constexpr (kSets == 2) {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) sums[1][r][p] = _mm512_setzero_si512();
    }
  }
  const int8_t* a = t.a;
  const uint8_t* b = t.b;
  const auto add = [&](int64_t units) __attribute__((always_inline)) {
    __m512i closed[P];
    BITGRAD_UNROLL(int p = 0; p < P; ++p) {
      closed[p] = _mm512_loadu_si512(b + 64 * p);
      _mm_prefetch(b + 64 * p + kAhead, _MM_HINT_T0);
    }
    BITGRAD_UNROLL(int f = 0; f < fields; ++f) {
      if (f >= units) break;
      __m512i y[P];
      BITGRAD_UNROLL(int p = 0; p < P; ++p) y[p] = _mm512_and_si512(_mm512_srli_epi16(closed[p], f * kWidth), mask);
      BITGRAD_UNROLL(int r = 0; r < R; ++r) {
        int32_t unit;
        __builtin_memcpy(&unit, a + r * t.a_step + 4 * f, 4);
        const __m512i x = _mm512_set1_epi32(unit);
        BITGRAD_UNROLL(int p = 0; p < P; ++p)
        sums[f % kSets][r][p] = _mm512_dpbusd_epi32(sums[f % kSets][r][p], y[p], x);
      }
    }
    a += 4 * fields;
    b += 64 * P;
  };
  int64_t u = 0;
  for (; u + fields <= t.units; u += fields) add(fields);
  if (u < t.units) add(t.units - u);
  if constexpr (kSets == 2) {
    BITGRAD_UNROLL(int r = 0; r < R; ++r) {
      BITGRAD_UNROLL(int p = 0; p < P; ++p) sums[0][r][p] = _mm512_add_epi32(sums[0][r][p], sums[1][r][p]);
    }
  }
  finish<R, P>(t, sums[0]);
}

template <int fields>
void open_fields(const uint8_t* in, int64_t steps, int64_t panels, uint8_t* out) {
  constexpr int kWidth = 8 / fields;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kWidth) - 1));
  for (int64_t s = 0; s < steps; ++s) {
    for (int64_t p = 0; p < panels; ++p, in += 64) {
      const __m512i x = _mm512_loadu_si512(in);
      BITGRAD_UNROLL(int f = 0; f < fields; ++f) {
        _mm512_storeu_si512(out + ((s * fields + f) * panels + p) * 64,
                            _mm512_and_si512(_mm512_srli_epi16(x, f * kWidth), mask));
      }
    }
  }
}

int32_t sum_bytes(const int8_t* row, int64_t count) {
  constexpr int64_t kAhead = 2048;  // bytes; rows are often contiguous
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  int64_t k = 0;
  for (; k + 128 <= count; k += 128) {
    _mm_prefetch(row + k + kAhead, _MM_HINT_T0);
    _mm_prefetch(row + k + kAhead + 64, _MM_HINT_T0);
    sums[0] = _mm512_dpbusd_epi32(sums[0], ones, _mm512_loadu_si512(row + k));
    sums[1] = _mm512_dpbusd_epi32(sums[1], ones, _mm512_loadu_si512(row + k + 64));
  }
  for (; k < count; k += 64) {
    const __mmask64 keep = count - k >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - k)) - 1;
    sums[0] = _mm512_dpbusd_epi32(sums[0], ones, _mm512_maskz_loadu_epi8(keep, row + k));
  }
  return _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]));
}

using TileFunction = void (*)(const S8PanelTile&);
template <int R>
constexpr TileFunction kRow[4] = {&tile_vnni<R, 1>, &tile_vnni<R, 2>, &tile_vnni<R, 3>, &tile_vnni<R, 4>};
constexpr const TileFunction* kTiles[6] = {kRow<1>, kRow<2>, kRow<3>, kRow<4>, kRow<5>, kRow<6>};

template <int fields>
constexpr TileFunction kFewTiles[4] = {&tile_few<1, fields>, &tile_few<2, fields>, &tile_few<3, fields>,
                                       &tile_few<4, fields>};

#pragma GCC pop_options

void tile(int rows, int panels, int, const S8PanelTile& t) { kTiles[rows - 1][panels - 1](t); }
void few_tile(int rows, int fields, const S8PanelTile& t) {
  (fields == 2 ? kFewTiles<2> : fields == 4 ? kFewTiles<4> : kFewTiles<8>)[rows - 1](t);
}
void open(const uint8_t* in, int64_t steps, int64_t panels, int fields, uint8_t* out) {
  (fields == 2 ? &open_fields<2> : fields == 4 ? &open_fields<4> : &open_fields<8>)(in, steps, panels, out);
}
constexpr S8PanelKernel kKernel{
    6, 8, &tile, true, 4, &few_tile, &open, &sum_bytes, {{350, 350, 350, 350, 350, 350, 350, 350}, 0.02}};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_avx512, false, 0)
BITGRAD_S8_PANEL_KERNEL(gemm_s8_s8_i32_vnni64_t_avx512, true, 0)

}  // namespace bitgrad::kernels::gemm_impl
