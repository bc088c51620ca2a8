// The loops of family attention for the baseline ISA: the reference.
#include "bitgrad/base/math.h"
#include "kernels/attention.h"
#include "kernels/attention/loops.h"

namespace bitgrad::kernels::attention_loops::scalar {
#define BITGRAD_LOOPS_ISA 0
#include "kernels/attention/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::attention_loops::scalar

namespace bitgrad::kernels::attention_loops {
const AttentionLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::attention_loops
