// Products of floats and codes by mma.sync, B stored [k, n]: gradients of x.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits, , _t, 2, false, true, false)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8, , _t, 2, false, true, false)

}  // namespace bitgrad::cuda::gemm
