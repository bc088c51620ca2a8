// The loops of family attention for AVX2: the same source in a target region, without contraction, hence bit-identical.
#include <immintrin.h>

#include "bitgrad/base/math.h"
#include "kernels/attention.h"
#include "kernels/attention/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
namespace bitgrad::kernels::attention_loops::avx2 {
#define BITGRAD_LOOPS_ISA 2
#include "kernels/attention/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::attention_loops::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::attention_loops {
const AttentionLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::attention_loops
