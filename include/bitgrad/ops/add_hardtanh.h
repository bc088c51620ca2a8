// add_hardtanh: hardtanh(a + b) as one op.
#pragma once

#include "bitgrad/ops/ops.h"

namespace bitgrad {

// Equivalent to unary(hardtanh, add(a, b)): same bits forward and backward, same errors. For fp32 tensors of equal
// shape on the CPU it runs in one pass and keeps one bit per element for backward instead of the sum; otherwise it runs
// the two ops.
Var add_hardtanh(const Var& a, const Var& b);

}  // namespace bitgrad
