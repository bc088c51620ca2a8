// The loops of family quantize for AVX2: the same source in a target region, without contraction, hence bit-identical.
#include <immintrin.h>

#include "kernels/quantize/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
namespace bitgrad::kernels::quantize_loops::avx2 {
#define BITGRAD_LOOPS_ISA 2
#include "kernels/quantize/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::quantize_loops::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::quantize_loops {
const QuantizeLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::quantize_loops
