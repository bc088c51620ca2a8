// Recomputation: a block of a forward pass that keeps what it reads in place of what its ops save, and runs again when
// its gradient comes (Chen et al. 2016, arXiv 1604.06174, "Training Deep Nets with Sublinear Memory Cost").
#pragma once

#include <functional>

#include "bitgrad/autograd/var.h"

namespace bitgrad {

// Called with the input of the block; again: in backward. Both times it must make the same numbers: it reads leaves
// whose values stay until backward has passed them, draws by counters, and stores nothing the second time.
using RecomputedBlock = std::function<Var(const Var& x, bool again)>;

// run(x, false). Where a tape records, the ops inside leave nothing on it but one node, which keeps x; in backward
// run(x, true) is recorded on a tape of its own, and its gradients are those of the block recorded as it is, bit for
// bit: leaves get their contributions in the same order, and one that is read once on all tapes gives its gradient in
// rows (GradRows). Blocks nest. A block whose ops read its output again gets the sum of a bf16 edge rounded twice.
// Throws Error where the second run gives another shape or dtype.
Var recompute(const Var& x, const RecomputedBlock& run);

}  // namespace bitgrad
