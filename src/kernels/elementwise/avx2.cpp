// The loops of family elementwise for AVX2: same source in a target region, without contraction, hence bit-identical.
#include <immintrin.h>

#include "bitgrad/base/math.h"
#include "kernels/elementwise/gelu_tables.inc"
#include "kernels/elementwise/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
namespace bitgrad::kernels::elementwise::avx2 {
#define BITGRAD_LOOPS_ISA 2
#include "kernels/elementwise/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::elementwise::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::elementwise {
const ElementwiseLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::elementwise
