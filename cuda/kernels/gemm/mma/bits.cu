// Products of bit planes by mma.sync (AND.popc). Native on compute capability 8.0 .. 9.0. Elsewhere the instruction is
// a slow call, so the kernel is empty and unavailable there.
#include "cuda/kernels/gemm/mma/tile.h"

namespace bitgrad::cuda::gemm {

BITGRAD_GLOBAL void __launch_bounds__(kMmaThreads, 1) gemm_bits_mma_sm80(MmaArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000
  MmaBlock<BitOp, 0>(args).run();
#endif
}

}  // namespace bitgrad::cuda::gemm
