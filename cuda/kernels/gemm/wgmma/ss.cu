// wgmma products of two operands in shared memory: 8-bit codes of either signedness, and bits (AND and popcount).
#include "cuda/kernels/gemm/wgmma/kernels.h"

namespace bitgrad::cuda::gemm {

#if BITGRAD_SM90A || defined(BITGRAD_CUDA_EMULATED)
#define BITGRAD_BODY(type, columns, cluster, rows, store)                                     \
  run_tiles<WgmmaStore::store, WgmmaType::type == WgmmaType::kB1, columns, 8, cluster, rows>( \
      args, [](const auto& tile, RingPlace& place, int consumer, int blocks, auto& d) {       \
        multiply<WgmmaType::type>(tile, place, consumer, blocks, d);                          \
      });
#else
#define BITGRAD_BODY(type, columns, cluster, rows, store)
#endif

#define BITGRAD_WGMMA_SS(name, type, columns, cluster, rows, store)       \
  BITGRAD_GLOBAL void __launch_bounds__(kWgmmaThreads, 1)                 \
      name([[maybe_unused]] const BITGRAD_GRID_CONSTANT WgmmaArgs args) { \
    BITGRAD_BODY(type, columns, cluster, rows, store)                     \
  }
#include "cuda/kernels/gemm/wgmma/ss_kernels.inc"
#undef BITGRAD_WGMMA_SS
#undef BITGRAD_BODY

}  // namespace bitgrad::cuda::gemm
