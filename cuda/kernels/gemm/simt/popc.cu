// Codes of one or two bits on both sides for few rows, by popc.
#include "cuda/kernels/gemm/simt/simt.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_SIMT_BITS(name, a, b) \
  BITGRAD_GLOBAL void __launch_bounds__(kSimtThreads) name(SimtArgs args) { run_simt<BitChunk<a>, BitChunk<b>>(args); }
BITGRAD_SIMT_BITS(gemm_b1_b1_popc_simt, 1, 1)
BITGRAD_SIMT_BITS(gemm_b1_b2_popc_simt, 1, 2)
BITGRAD_SIMT_BITS(gemm_b2_b1_popc_simt, 2, 1)
BITGRAD_SIMT_BITS(gemm_b2_b2_popc_simt, 2, 2)
#undef BITGRAD_SIMT_BITS

}  // namespace bitgrad::cuda::gemm
