// The loops of family reduce for the baseline ISA: the reference.
#include "kernels/reduce/loops.h"

namespace bitgrad::kernels::reduce_loops {
namespace scalar {
#define BITGRAD_LOOPS_ISA 0
#include "kernels/reduce/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace scalar
const ReduceLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::reduce_loops
