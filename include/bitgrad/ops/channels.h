// Ops with one learned number a channel, the last axis. Both throw Error on a wrong shape or dtype.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// y = x > 0 ? x : slope[c] * x for x [..,c] (He et al. 2015, arXiv 1502.01852, equation 1). x fp32, or bf16 (in fp32,
// rounded once), slope [c] fp32; both fp64. Backward: at 0 as below it; of slope the sum of gy * x where x <= 0.
Var prelu(const Var& x, const Var& slope);
// y = x + b[c] for x [..,c]; dtypes as in prelu. Backward: of b the sum of gy.
Var shift(const Var& x, const Var& b);

}  // namespace bitgrad
