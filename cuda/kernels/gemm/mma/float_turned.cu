// Products of floats and codes by mma.sync, A stored [k, m] and B [k, n]: gradients of weights. Covers the code widths
// that activations use.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

BITGRAD_FLOAT_MMA(1, t_, _t, 2, true, true, false)
BITGRAD_FLOAT_MMA(2, t_, _t, 2, true, true, false)
BITGRAD_FLOAT_MMA(4, t_, _t, 2, true, true, false)
BITGRAD_FLOAT_MMA(8, t_, _t, 2, true, true, false)

}  // namespace bitgrad::cuda::gemm
