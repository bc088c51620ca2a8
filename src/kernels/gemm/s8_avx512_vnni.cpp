// Small integers in bytes by VPDPBUSD (unsigned B times signed A, four products a lane, no saturation): 64
// multiply-adds an instruction.
#include <immintrin.h>

#include "kernels/gemm/rows.h"
#include "kernels/gemm/s8.h"

#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace bitgrad::gemm_detail {
namespace {

inline __m512i broadcast_unit(const char* p) {
  int32_t unit;
  __builtin_memcpy(&unit, p, 4);
  return _mm512_set1_epi32(unit);
}

template <int R, int P>
void tile_vnni(const S8Tile& t) {
  const char *a = static_cast<const char*>(t.a), *b = static_cast<const char*>(t.b);
  __m512i sums[R][P];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      sums[r][p] = _mm512_add_epi32(_mm512_set1_epi32(t.row_start[r]), _mm512_loadu_si512(t.column_start + 16 * p));
    }
  }
  for (int64_t u = 0; u < t.units; ++u) {
    __m512i y[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) y[p] = _mm512_loadu_si512(b + p * t.b_step + u * 64);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i x = broadcast_unit(a + r * t.a_step + 4 * u);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], y[p], x);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) _mm512_storeu_si512(t.out + r * kS8TileColumns + 16 * p, sums[r][p]);
  }
}

using TileFunction = void (*)(const S8Tile&);
template <int R>
constexpr TileFunction kRow[4] = {&tile_vnni<R, 1>, &tile_vnni<R, 2>, &tile_vnni<R, 3>, &tile_vnni<R, 4>};
constexpr const TileFunction* kTiles[6] = {kRow<1>, kRow<2>, kRow<3>, kRow<4>, kRow<5>, kRow<6>};

}  // namespace
}  // namespace bitgrad::gemm_detail

#pragma GCC pop_options

namespace bitgrad::gemm_detail {
namespace {

void tile(int rows, int panels, const S8Tile& t) { kTiles[rows - 1][panels - 1](t); }
constexpr S8Kernel kKernel{6, 4, false, &tile};

}  // namespace
}  // namespace bitgrad::gemm_detail

namespace bitgrad::gemm_rows_detail {

using namespace gemm_detail;

bool gemm_s8_s8_i32_vnni_avx512_supports(const GemmArgs& args) { return s8_supports(args); }
double gemm_s8_s8_i32_vnni_avx512_cost(const GemmArgs& args) { return s8_cost(args, 380, 0.25); }
void gemm_s8_s8_i32_vnni_avx512(const GemmArgs& args) { s8_gemm(args, kKernel); }

}  // namespace bitgrad::gemm_rows_detail
