// Products of floats and codes by mma.sync, where B has group scales along k, zero points or offsets.
#include "cuda/kernels/gemm/mma/float_tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WEIGHT_BITS(bits) BITGRAD_FLOAT_MMA(bits, , _groups, 1, false, false, true)
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
BITGRAD_FLOAT_MMA(8, , _groups, 1, false, false, true)

}  // namespace bitgrad::cuda::gemm
