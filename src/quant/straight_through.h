// Parts of the straight-through rule that the op quantize and leaf_backward share.
#pragma once

#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// out[r,c] = g[r,c] * scale of (r,c), of `params` without a zero point or offset; a copy where the scales are all 1.
// fp32, dense; out may be g.
void times_scale(const QuantParams& params, const Tensor& g, const Tensor& out);

}  // namespace bitgrad::detail
