// Products of floats and codes by mma.sync, both operands stored in rows of k: the forward pass.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits, , , 2, false, false, false)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8, , , 2, false, false, false)

}  // namespace bitgrad::cuda::gemm
