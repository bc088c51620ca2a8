// gemm_f32_chain512_scalar: the reference for this order, without intrinsics.
#include <cmath>

#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/fma_loops.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_impl {
namespace {

constexpr int64_t kMr = 4, kNr = 8;

void tile(int64_t kc, int64_t rows, int64_t cols, const float* a, const float* b, float* c, int64_t ldc, bool add) {
  gemm_detail::fma_loops([=]() BITGRAD_FMA_LOOPS {
    for (int64_t i = 0; i < rows; ++i) {
      float sum[kNr] = {};
      for (int64_t k = 0; k < kc; ++k) {
        const float x = a[k * kMr + i];
        for (int64_t j = 0; j < kNr; ++j) sum[j] = std::fma(x, b[k * kNr + j], sum[j]);
      }
      for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
  });
}

constexpr gemm_detail::ChainKernel kKernel{kMr, kNr, tile, 2.5, nullptr};

}  // namespace

BITGRAD_DEFINE_GEMM(gemm_f32_chain512_scalar, gemm_detail::chain512_supports(args),
                    gemm_detail::kReferenceCost + gemm_detail::chain512_cost(kKernel, args),
                    gemm_detail::run_chain512(kKernel, args))

}  // namespace bitgrad::kernels::gemm_impl
