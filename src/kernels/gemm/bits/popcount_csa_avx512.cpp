// b1 x b1 with VPOPCNTDQ, counting two words at once with a carry-save adder (Harley and Seal; Warren, "Hacker's
// Delight", 2nd ed., section 5-1) into which the exclusive or is folded. o holds bits not counted yet; a1 ^ b1 and a2 ^
// b2 are added:
//   q = o ^ a1 ^ b1,  s = q ^ a2 ^ b2,  carry = q ? ~s : o,  o = s,  count += 2 popc(carry)
// Three VPTERNLOG, a VPOPCNTD and a VPADDD process 1024 products of bits; the limit is 410 per cycle where two ports
// execute them.
#include <cpuid.h>

#include "base/simd.h"
#include "kernels/gemm/bits/popcount.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt")

#include "kernels/gemm/bits/popcount_avx512_tile.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// A count in two weights: popc(one) + 2 * twos.
struct CarrySum {
  __m512i one, twos;
};
constexpr int kCarry = (kTa & ~kTb & 0xFF) | (~kTa & kTc & 0xFF);  // a ? ~b : c

// Two words of R rows and P panels. The steps of different panels are interleaved to hide latency.
template <int R, int P>
inline void add_pair(const BitTile& t, int64_t w, CarrySum (&sums)[R][P]) {
  __m512i b1[P], b2[P];
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    b1[p] = _mm512_loadu_si512(t.b[0] + p * t.b_step + w * kPanelRows);
    b2[p] = _mm512_loadu_si512(t.b[0] + p * t.b_step + (w + 1) * kPanelRows);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m512i a1 = _mm512_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w]));
    const __m512i a2 = _mm512_set1_epi32(static_cast<int32_t>(t.a[0][r * t.a_step + w + 1]));
    __m512i q[P], s[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) q[p] = _mm512_ternarylogic_epi32(sums[r][p].one, a1, b1[p], kTa ^ kTb ^ kTc);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) s[p] = _mm512_ternarylogic_epi32(q[p], a2, b2[p], kTa ^ kTb ^ kTc);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512i carry = _mm512_ternarylogic_epi32(q[p], s[p], sums[r][p].one, kCarry);
      sums[r][p].one = s[p];
      sums[r][p].twos = _mm512_add_epi32(sums[r][p].twos, _mm512_popcnt_epi32(carry));
      // Emits no instruction; prevents the compiler from hoisting loads of later words and spilling sums for them.
      asm("" : "+v"(sums[r][p].one), "+v"(sums[r][p].twos));
    }
  }
}

template <int R, int P>
void tile_carry_save(const BitTile& t) {
  CarrySum sums[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) sums[r][p].one = sums[r][p].twos = _mm512_setzero_si512();
  }
  // Few iterations, so that the loop's end is predicted and the next tile begins before this one is stored.
  constexpr int64_t kTurn = 4;
  const int64_t full = t.words / kTurn * kTurn, even = t.words / 2 * 2;
  for (int64_t w = 0; w < full; w += kTurn) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kTurn; v += 2) add_pair<R, P>(t, w + v, sums);
  }
#pragma GCC unroll 1
  for (int64_t w = full; w < even; w += 2) add_pair<R, P>(t, w, sums);
  Sum<DotB1B1> counts[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const CarrySum& s = sums[r][p];
      counts[r][p].plus = _mm512_add_epi32(_mm512_add_epi32(s.twos, s.twos), _mm512_popcnt_epi32(s.one));
    }
  }
  if (even != t.words) add_column<DotB1B1, R, P, false>(t, even, counts);
  if (t.tail != 0) add_column<DotB1B1, R, P, true>(t, t.words, counts);
  store_tile<DotB1B1, R, P>(t, counts);
}

// Two registers per output, hence half as many panels.
constexpr TileFunction kCarrySaveTiles[4][2] = {{&tile_carry_save<1, 1>, &tile_carry_save<1, 2>},
                                                {&tile_carry_save<2, 1>, &tile_carry_save<2, 2>},
                                                {&tile_carry_save<3, 1>, &tile_carry_save<3, 2>},
                                                {&tile_carry_save<4, 1>, &tile_carry_save<4, 2>}};

#pragma GCC pop_options

void tile_csa(int rows, int panels, const BitTile& t) { kCarrySaveTiles[rows - 1][panels - 1](t); }
constexpr BitKernel kCarrySaveKernel{4, 2, &tile_csa, &count_row_avx512, true};

// Zen 4 (AMD family 19h) splits 512-bit operations in two and executes 1.62 VPTERNLOG per cycle, so the plain kernel is
// faster there.
bool slow_ternary_logic() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || !__get_cpuid(1, &a, &b, &c, &d)) return false;
  const uint32_t family = ((a >> 8) & 0xF) + ((a >> 20) & 0xFF);
  return family == 0x19;
}

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

bool gemm_b1_b1_i32_popcount_csa_avx512_supports(const GemmArgs& args) { return popcount_supports<DotB1B1>(args); }

double gemm_b1_b1_i32_popcount_csa_avx512_cost(const GemmArgs& args) {
  static const bool slow = slow_ternary_logic();
  return popcount_cost(args, kCarrySaveKernel, slow ? 850 : 1010);
}

void gemm_b1_b1_i32_popcount_csa_avx512(const GemmArgs& args) { popcount_gemm<DotB1B1>(args, kCarrySaveKernel); }

}  // namespace bitgrad::kernels::gemm_impl
