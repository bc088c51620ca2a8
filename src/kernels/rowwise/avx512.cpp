// The loops of family rowwise for AVX-512: the same source in a target region, without contraction, so the same bits.
#include "bitgrad/base/math.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/rowwise/loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
namespace bitgrad::kernels::rowwise::avx512 {
#include "kernels/rowwise/loops.inc"
}  // namespace bitgrad::kernels::rowwise::avx512
#pragma GCC pop_options

namespace bitgrad::kernels::rowwise {
const RowwiseLoops& loops_avx512() { return avx512::kLoops; }
}  // namespace bitgrad::kernels::rowwise
