// The loops of direct convolutions (binary/, first_layer/) with AVX-512.
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/first_layer/first_layer.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // false positives in the AVX-512 headers of g++ 12
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,fma,bmi2,prefer-vector-width=512")

#include "kernels/conv/avx512_lanes.h"
#include "kernels/conv/binary/loops.h"
#include "kernels/conv/first_layer/loops.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr FewIsa kFewAvx512 = FewLoops<Avx512Lanes>::isa();
constexpr SignIsa kSignsAvx512 = SignLoops<Avx512Lanes>::isa();

}  // namespace
}  // namespace bitgrad::kernels::conv

#pragma GCC pop_options
#pragma GCC diagnostic pop

namespace bitgrad::kernels::conv {
const FewIsa& few_machine() { return kFewAvx512; }
const SignIsa& signs_machine() { return kSignsAvx512; }
}  // namespace bitgrad::kernels::conv
#endif
