// Recomputation: a block of the forward pass that keeps its input instead of what its ops would save, and runs again
// when its gradient arrives (Chen et al. 2016, arXiv 1604.06174, "Training Deep Nets with Sublinear Memory Cost").
#pragma once

#include <functional>

#include "bitgrad/autograd/var.h"

namespace bitgrad {

// Called with the input of the block; `again` is true in backward. Both runs must compute the same values: the block
// may read only leaves whose values do not change until backward is done, must draw by counters, and must not store
// anything the second time.
using RecomputedBlock = std::function<Var(const Var& x, bool again)>;

// Runs run(x, false). If a tape records, the ops inside leave a single node on it, which keeps x. Backward calls run(x,
// true) on a tape of its own. The gradients are those of the block recorded normally, bit for bit: leaves receive their
// contributions in the same order, and a leaf read once across all tapes passes its gradient in rows (GradRows). Blocks
// may nest. Exception: if ops of the block read its output, the sum of a bf16 edge is rounded twice. Throws Error if
// the second run returns another shape or dtype.
Var recompute(const Var& x, const RecomputedBlock& run);

}  // namespace bitgrad
