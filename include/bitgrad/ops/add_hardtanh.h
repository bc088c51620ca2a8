// hardtanh(a + b) as one op.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// unary(hardtanh, add(a, b)): same bits, forward and backward, and the same errors. On the CPU, of fp32 tensors of one
// shape, it is one pass, and one bit an element is kept for the backward in place of the sum; elsewhere the two ops.
Var add_hardtanh(const Var& a, const Var& b);

}  // namespace bitgrad
