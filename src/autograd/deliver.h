// Stores one contribution to a gradient at its destination.
#pragma once

#include "bitgrad/autograd/tape.h"

namespace bitgrad::detail {

// Stores `gradient` in the target or adds it, as the target requests. `gradient` is fp32 or bf16, or fp64 for an fp64
// target; same shape, dense.
void deliver(const GradTarget& target, const Tensor& gradient);

}  // namespace bitgrad::detail
