// The loops of family quantize for the baseline ISA: the reference.
#include "kernels/quantize/loops.h"

namespace bitgrad::kernels::quantize_loops {
namespace scalar {
#define BITGRAD_LOOPS_ISA 0
#include "kernels/quantize/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace scalar
const QuantizeLoops& loops_scalar() { return scalar::kLoops; }
}  // namespace bitgrad::kernels::quantize_loops
