// Products of bytes, and of bit planes (AND.popc), by mma.sync.
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

// Native on compute capability 8.0 .. 9.0. Elsewhere the instruction is a slow call, so the kernel is empty and
// unavailable there.
BITGRAD_GLOBAL void __launch_bounds__(kMmaThreads, 1) gemm_bits_mma_sm80(MmaArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000
  MmaBlock<BitOp, 0>(args).run();
#endif
}

}  // namespace bitgrad::cuda::gemm
