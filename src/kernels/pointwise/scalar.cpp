// The loops of family pointwise for the baseline ISA: the reference.
#include "kernels/pointwise/loops.h"

namespace bitgrad::kernels::pointwise_loops {
namespace scalar {
#include "kernels/pointwise/loops.inc"
}  // namespace scalar
const PointwiseLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::pointwise_loops
