// Nibble counts with AVX2: 64 lanes per entry, the tables of two groups (24 KiB) in L1.
#include "base/simd.h"
#include "kernels/gemm/bits/nibble.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,bmi2,popcnt")

namespace bitgrad::kernels::gemm_detail {
namespace {

struct V {
  using Reg = __m256i;
  static constexpr int64_t kBytes = 32;
  static inline Reg zero() { return _mm256_setzero_si256(); }
  static inline Reg set1(char x) { return _mm256_set1_epi8(x); }
  static inline Reg set1_16(short x) { return _mm256_set1_epi16(x); }
  static inline Reg load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
  static inline void store(void* p, Reg x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }
  static inline Reg add(Reg a, Reg b) { return _mm256_add_epi8(a, b); }
  static inline Reg sub(Reg a, Reg b) { return _mm256_sub_epi8(a, b); }
  static inline Reg add16(Reg a, Reg b) { return _mm256_add_epi16(a, b); }
  static inline Reg bit_and(Reg a, Reg b) { return _mm256_and_si256(a, b); }
  static inline Reg average(Reg a, Reg b) { return _mm256_avg_epu8(a, b); }
  template <int n>
  static inline Reg shift_right(Reg a) {
    return _mm256_srli_epi16(a, n);
  }
  static inline void keep(Reg&, Reg&) {}
};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

#include "kernels/gemm/bits/nibble_loops.h"

#pragma GCC pop_options

namespace bitgrad::kernels::gemm_impl {

using namespace gemm_detail;

namespace {
constexpr NibbleKernel kKernel{64, 2, 760, 245, &columns, &split, &build, &look_up, &transpose, &write, &count};
}  // namespace

BITGRAD_NIBBLE_KERNEL(gemm_b1_b1_i32_nibble_avx2, false, false)
BITGRAD_NIBBLE_KERNEL(gemm_t_b1_i32_nibble_avx2, true, false)
BITGRAD_NIBBLE_KERNEL(gemm_t_t_i32_nibble_avx2, true, true)

}  // namespace bitgrad::kernels::gemm_impl
