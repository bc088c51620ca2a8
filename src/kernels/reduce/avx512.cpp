// The loops of family reduce for AVX-512: the same source in a target region, without contraction, hence
// bit-identical. The AVX-512 headers of g++ 12 deliberately read an uninitialized vector.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "kernels/reduce/loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
namespace bitgrad::kernels::reduce_loops::avx512 {
#define BITGRAD_LOOPS_ISA 512
#include "kernels/reduce/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::reduce_loops::avx512
#pragma GCC pop_options

namespace bitgrad::kernels::reduce_loops {
const ReduceLoops& loops_avx512() { return avx512::kLoops; }
}  // namespace bitgrad::kernels::reduce_loops
