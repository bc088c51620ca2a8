// Products of floats and codes by mma.sync, A stored [k, m] and B [k, n]: gradients of weights. Covers the code widths
// that activations use.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_FLOAT_MMA(bits)                                                                                 \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 2) gemm_bf16_t_w##bits##_t_mma_sm80(FloatMmaArgs args) { \
    FloatBlock<1, bits, true, true, false>(args).run();                                                         \
  }                                                                                                             \
  BITGRAD_GLOBAL void __launch_bounds__(kFloatThreads, 1) gemm_f32_t_w##bits##_t_mma_sm80(FloatMmaArgs args) {  \
    FloatBlock<3, bits, true, true, false>(args).run();                                                         \
  }
BITGRAD_FLOAT_MMA(1)
BITGRAD_FLOAT_MMA(2)
BITGRAD_FLOAT_MMA(4)
BITGRAD_FLOAT_MMA(8)
#undef BITGRAD_FLOAT_MMA

}  // namespace bitgrad::cuda::gemm
