// Bytes times packed codes of 1 .. 7 bits by mma.sync.
#include "cuda/kernels/gemm/mma/tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WEIGHT_BITS(bits)                                                                  \
  BITGRAD_GLOBAL void __launch_bounds__(kMmaThreads, 1) gemm_s8_w##bits##_mma_sm80(MmaArgs args) { \
    MmaBlock<ByteOp<false, false>, bits>(args).run();                                              \
  }                                                                                                \
  BITGRAD_GLOBAL void __launch_bounds__(kMmaThreads, 1) gemm_u8_w##bits##_mma_sm80(MmaArgs args) { \
    MmaBlock<ByteOp<true, false>, bits>(args).run();                                               \
  }
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS

}  // namespace bitgrad::cuda::gemm
