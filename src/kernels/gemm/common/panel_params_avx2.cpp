#include "base/simd.h"
#include "kernels/gemm/common/panel_params.h"

#pragma GCC push_options
#pragma GCC target("avx2,f16c")

namespace bitgrad::kernels::gemm_detail {

void widen_halves_avx2(const uint16_t* in, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  for (; i < count; ++i) out[i] = _cvtsh_ss(in[i]);
}

}  // namespace bitgrad::kernels::gemm_detail

#pragma GCC pop_options
