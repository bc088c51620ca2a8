// Ops with one learned value per channel (the last axis). Both throw Error on a wrong shape or dtype.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// y = x > 0 ? x : slope[c] * x for x [..,c] (He et al. 2015, arXiv 1502.01852, equation 1). x fp32 or bf16 (computed in
// fp32, rounded once) with slope [c] in fp32, or both fp64. Backward: x = 0 counts as negative; the gradient of slope
// is the sum of gy * x over x <= 0.
Var prelu(const Var& x, const Var& slope);
// y = x + b[c] for x [..,c]; dtypes as in prelu. Backward: the gradient of b is the sum of gy.
Var shift(const Var& x, const Var& b);

}  // namespace bitgrad
