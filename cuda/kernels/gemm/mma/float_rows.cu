// Products of floats and codes by mma.sync, both operands stored in rows of k: the forward pass.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_FLOAT_MMA(bits)                                                                             \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 2) gemm_bf16_w##bits##_mma_sm80(FloatMmaArgs args) { \
    FloatBlock<1, bits, false, false, false>(args).run();                                                   \
  }                                                                                                         \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 1) gemm_f32_w##bits##_mma_sm80(FloatMmaArgs args) {  \
    FloatBlock<3, bits, false, false, false>(args).run();                                                   \
  }
#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8)
#undef BITGRAD_FLOAT_MMA

}  // namespace bitgrad::cuda::gemm
