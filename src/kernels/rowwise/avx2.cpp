// The loops of family rowwise for AVX2: the same source in a target region, without contraction, hence bit-identical.
#include <immintrin.h>

#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/rowwise/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
namespace bitgrad::kernels::rowwise::avx2 {
#define BITGRAD_LOOPS_ISA 2
#include "kernels/rowwise/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::rowwise::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::rowwise {
const RowwiseLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::rowwise
