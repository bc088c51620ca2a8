// Bytes times codes of 1 .. 8 bits for few rows, by dp4a.
#include "cuda/kernels/gemm/simt/simt.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WEIGHT_BITS(bits)                                                                  \
  BITGRAD_GLOBAL void __launch_bounds__(kSimtThreads) gemm_s8_w##bits##_dp4a_simt(SimtArgs args) { \
    run_simt<ByteChunk<8>, ByteChunk<bits>>(args);                                                 \
  }
#include "cuda/kernels/gemm/weight_bits.inc"
BITGRAD_WEIGHT_BITS(8)
#undef BITGRAD_WEIGHT_BITS

}  // namespace bitgrad::cuda::gemm
