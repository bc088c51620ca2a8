// The loops of family pointwise for AVX2: the same source in a target region, without contraction, hence bit-identical.
#include "kernels/pointwise/loops.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
namespace bitgrad::kernels::pointwise_loops::avx2 {
#include "kernels/pointwise/loops.inc"
}  // namespace bitgrad::kernels::pointwise_loops::avx2
#pragma GCC pop_options

namespace bitgrad::kernels::pointwise_loops {
const PointwiseLoops& loops_avx2() { return avx2::kLoops; }
}  // namespace bitgrad::kernels::pointwise_loops
