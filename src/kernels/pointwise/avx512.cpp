// The loops of family pointwise for AVX-512: same source in a target region, without contraction, hence bit-identical.
#include "kernels/pointwise/loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
namespace bitgrad::kernels::pointwise_loops::avx512 {
#include "kernels/pointwise/loops.inc"
}  // namespace bitgrad::kernels::pointwise_loops::avx512
#pragma GCC pop_options

namespace bitgrad::kernels::pointwise_loops {
const PointwiseLoops& loops_avx512() { return avx512::kLoops; }
}  // namespace bitgrad::kernels::pointwise_loops
