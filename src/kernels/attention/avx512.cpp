// The loops of family attention for AVX-512: the same source in a target region, without contraction, hence
// bit-identical. The AVX-512 headers of g++ 12 deliberately read an uninitialized vector.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "bitgrad/base/math.h"
#include "kernels/attention.h"
#include "kernels/attention/loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
namespace bitgrad::kernels::attention_loops::avx512 {
#define BITGRAD_LOOPS_ISA 512
#include "kernels/attention/loops.inc"
#undef BITGRAD_LOOPS_ISA
}  // namespace bitgrad::kernels::attention_loops::avx512
#pragma GCC pop_options

namespace bitgrad::kernels::attention_loops {
const AttentionLoops& loops_avx512() { return avx512::kLoops; }
}  // namespace bitgrad::kernels::attention_loops
