// Popcount products with VPOPCNTDQ: one register holds one word of 16 columns. XOR, VPOPCNTD and VPADDD process 512
// products of bits; the limit is 341 multiply-adds per cycle where two ports execute them.
#include "base/simd.h"
#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt")

#include "kernels/gemm/bits/popcount_avx512_tile.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

template <typename Dot, int R, int P>
void tile_avx512(const BitTile& t) {
  Sum<Dot> sums[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[r][p].plus = sums[r][p].minus = _mm512_setzero_si512();
  }
  for (int64_t w = 0; w < t.words; ++w) add_column<Dot, R, P, false>(t, w, sums);
  if (t.tail != 0) add_column<Dot, R, P, true>(t, t.words, sums);
  store_tile<Dot, R, P>(t, sums);
}

template <typename Dot>
constexpr TileFunction kTiles[4][4] = {
    {&tile_avx512<Dot, 1, 1>, &tile_avx512<Dot, 1, 2>, &tile_avx512<Dot, 1, 3>, &tile_avx512<Dot, 1, 4>},
    {&tile_avx512<Dot, 2, 1>, &tile_avx512<Dot, 2, 2>, &tile_avx512<Dot, 2, 3>, &tile_avx512<Dot, 2, 4>},
    {&tile_avx512<Dot, 3, 1>, &tile_avx512<Dot, 3, 2>, &tile_avx512<Dot, 3, 3>, &tile_avx512<Dot, 3, 4>},
    {&tile_avx512<Dot, 4, 1>, &tile_avx512<Dot, 4, 2>, &tile_avx512<Dot, 4, 3>, &tile_avx512<Dot, 4, 4>},
};
// Two sums per output, hence half as many panels.
template <typename Dot>
constexpr TileFunction kNarrowTiles[4][2] = {{&tile_avx512<Dot, 1, 1>, &tile_avx512<Dot, 1, 2>},
                                             {&tile_avx512<Dot, 2, 1>, &tile_avx512<Dot, 2, 2>},
                                             {&tile_avx512<Dot, 3, 1>, &tile_avx512<Dot, 3, 2>},
                                             {&tile_avx512<Dot, 4, 1>, &tile_avx512<Dot, 4, 2>}};

#pragma GCC pop_options

template <typename Dot>
void tile(int rows, int panels, const BitTile& t) {
  if constexpr (Dot::kSums == 2) {
    kNarrowTiles<Dot>[rows - 1][panels - 1](t);
  } else {
    kTiles<Dot>[rows - 1][panels - 1](t);
  }
}
template <typename Dot>
constexpr BitKernel kKernel{4, Dot::kSums == 2 ? 2 : 4, &tile<Dot>, &count_row_avx512, true};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

BITGRAD_POPCOUNT_KERNEL(gemm_b1_b1_i32_popcount_avx512, DotB1B1, 880, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_t_b1_i32_popcount_avx512, DotTB1, 840, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_t_t_i32_popcount_avx512, DotTT, 435, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_i2_b1_i32_popcount_avx512, DotI2B1, 415, 0)
BITGRAD_POPCOUNT_KERNEL(gemm_u2_b1_i32_popcount_avx512, DotU2B1, 415, 0)

}  // namespace bitgrad::kernels::gemm_impl
