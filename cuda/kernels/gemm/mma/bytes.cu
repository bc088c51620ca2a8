// Products of bytes by mma.sync.
#include "cuda/kernels/gemm/mma/tile.h"

namespace bitgrad::cuda::gemm {

// Two blocks per SM, except on sm_80, where that would spill a register.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 800
constexpr int kBlocks = 1;
#else
constexpr int kBlocks = 2;
#endif

#define BITGRAD_MMA_BYTES(name, unsigned_a, unsigned_b)                            \
  BITGRAD_GLOBAL void __launch_bounds__(kMmaThreads, kBlocks) name(MmaArgs args) { \
    MmaBlock<ByteOp<unsigned_a, unsigned_b>, 0>(args).run();                       \
  }
BITGRAD_MMA_BYTES(gemm_s8_s8_mma_sm80, false, false)
BITGRAD_MMA_BYTES(gemm_s8_u8_mma_sm80, false, true)
BITGRAD_MMA_BYTES(gemm_u8_s8_mma_sm80, true, false)
BITGRAD_MMA_BYTES(gemm_u8_u8_mma_sm80, true, true)
#undef BITGRAD_MMA_BYTES

}  // namespace bitgrad::cuda::gemm
