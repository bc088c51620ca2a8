// The loops of family rowwise for the baseline ISA: the reference.
#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/rowwise/loops.h"

namespace bitgrad::kernels::rowwise {
namespace scalar {
#define BITGRAD_LOOPS_ISA 0
#include "kernels/rowwise/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace scalar
const RowwiseLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::rowwise
