// The loops of family elementwise for the baseline ISA: the reference.
#include "bitgrad/base/math.h"
#include "kernels/elementwise/gelu_tables.inc"
#include "kernels/elementwise/loops.h"

namespace bitgrad::kernels::elementwise {
namespace scalar {
#define BITGRAD_LOOPS_ISA 0
#include "kernels/elementwise/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace scalar
const ElementwiseLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::elementwise
