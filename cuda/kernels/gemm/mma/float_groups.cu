// Products of floats and codes by mma.sync, where B has group scales along k, zero points or offsets.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_FLOAT_MMA(bits)                                                                                    \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 1) gemm_bf16_w##bits##_groups_mma_sm80(FloatMmaArgs args) { \
    FloatBlock<1, bits, false, false, true>(args).run();                                                           \
  }                                                                                                                \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 1) gemm_f32_w##bits##_groups_mma_sm80(FloatMmaArgs args) {  \
    FloatBlock<3, bits, false, false, true>(args).run();                                                           \
  }
#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8)
#undef BITGRAD_FLOAT_MMA

}  // namespace bitgrad::cuda::gemm
