// Batch norm of int32 with a scale per tensor or channel(1): y fp32.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

Var integer_batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options);

}  // namespace bitgrad
