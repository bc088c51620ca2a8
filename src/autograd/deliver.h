// One contribution to a gradient, written or added where it goes.
#pragma once

#include "bitgrad/autograd/tape.h"

namespace bitgrad::detail {

// target = or += gradient, where the gradient is fp32 (fp64) or already in the target's dtype; same shape, dense.
void deliver(const GradTarget& target, const Tensor& gradient);

}  // namespace bitgrad::detail
