// gemm_f32_s8_f32_vnni64_scalar: runs on every machine and is the reference for the other kernels.
#include <cmath>

#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/chain512.h"
#include "kernels/gemm/floats/chain512_vnni64.h"
#include "kernels/gemm/floats/fma_loops.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

inline float value_of(const ChainPanelTile& t, int64_t at, int code) {
  float value = t.factor * static_cast<float>(code) + t.lowest;  // exact
  if (t.zero != nullptr) value = value - t.zero[at];
  value = value * t.scale[at];
  return t.offset == nullptr ? value : value + t.offset[at];
}

void panel_tile(int rows, int bits, const ChainPanelTile& t) {
  const int fields = vnni_fields(bits), width = 8 / fields, mask = (1 << width) - 1;
  fma_loops([=, &t]() BITGRAD_FMA_LOOPS {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < t.panels * kPanelRows; ++j) {
        const uint8_t* b = t.b + j / kPanelRows * 64 + j % kPanelRows * 4;
        float sum = 0, chain = 0;
        for (int64_t k = 0; k < t.k; ++k) {
          const int64_t line = k / 4 / fields, field = k / 4 % fields;
          const int shift = static_cast<int>(field) * width;
          const int code = (b[line * 64 * t.panels + k % 4] >> shift) & mask;
          chain = std::fma(t.a[r * t.a_step + k], value_of(t, line / t.steps * kPanelColumns + j, code), chain);
          if ((k + 1) % kChainPanel != 0 && k + 1 != t.k) continue;
          sum = k < kChainPanel ? chain : sum + chain;
          chain = 0;
        }
        t.c[r * kPanelColumns + j] = sum;
      }
    }
  });
}

constexpr ChainPanelKernel kPanelKernel{1, &panel_tile, {}, 1, 1};

}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

namespace bitgrad::kernels::gemm_impl {

BITGRAD_DEFINE_GEMM(gemm_f32_s8_f32_vnni64_scalar, gemm_detail::chain512_vnni64_supports(args),
                    gemm_detail::kReferenceCost + gemm_detail::chain512_vnni64_cost(args, gemm_detail::kPanelKernel),
                    gemm_detail::chain512_vnni64_gemm(args, gemm_detail::kPanelKernel))

}  // namespace bitgrad::kernels::gemm_impl
