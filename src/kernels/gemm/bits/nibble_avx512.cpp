// Nibble counts with AVX-512: 128 lanes per entry, the tables of one group (24 KiB) in L1.
#include "base/simd.h"
#include "kernels/gemm/bits/nibble.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,bmi2,popcnt")

namespace bitgrad::kernels::gemm_detail {
namespace {

struct V {
  using Reg = __m512i;
  static constexpr int64_t kBytes = 64;
  static inline Reg zero() { return _mm512_setzero_si512(); }
  static inline Reg set1(char x) { return _mm512_set1_epi8(x); }
  static inline Reg set1_16(short x) { return _mm512_set1_epi16(x); }
  static inline Reg load(const void* p) { return _mm512_load_si512(p); }
  static inline void store(void* p, Reg x) { _mm512_store_si512(p, x); }
  static inline Reg add(Reg a, Reg b) { return _mm512_add_epi8(a, b); }
  static inline Reg sub(Reg a, Reg b) { return _mm512_sub_epi8(a, b); }
  static inline Reg add16(Reg a, Reg b) { return _mm512_add_epi16(a, b); }
  static inline Reg bit_and(Reg a, Reg b) { return _mm512_and_si512(a, b); }
  static inline Reg average(Reg a, Reg b) { return _mm512_avg_epu8(a, b); }
  template <int n>
  static inline Reg shift_right(Reg a) {
    return _mm512_srli_epi16(a, n);
  }
  static inline void keep(Reg& a, Reg& b) { asm("" : "+v"(a), "+v"(b)); }
};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

#include "kernels/gemm/bits/nibble_loops.h"

#pragma GCC pop_options

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

namespace {
constexpr NibbleKernel kKernel{128, 1, 1080, 350, &columns, &split, &build, &look_up, &transpose, &write, &count};
}  // namespace

BITGRAD_NIBBLE_KERNEL(gemm_b1_b1_i32_nibble_avx512, false, false)
BITGRAD_NIBBLE_KERNEL(gemm_t_b1_i32_nibble_avx512, true, false)
BITGRAD_NIBBLE_KERNEL(gemm_t_t_i32_nibble_avx512, true, true)

}  // namespace bitgrad::kernels::gemm_impl
