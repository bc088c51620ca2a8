// The loops of direct convolutions (signs/, few/) with AVX-512.
#include "kernels/windows/few/few.h"
#include "kernels/windows/signs/signs.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // false positives in the AVX-512 headers of g++ 12
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,fma,bmi2,prefer-vector-width=512")

#include "kernels/windows/avx512_lanes.h"
#include "kernels/windows/few/loops.h"
#include "kernels/windows/signs/loops.h"

namespace bitgrad::kernels::windows {
namespace {

constexpr FewIsa kFewAvx512 = FewLoops<Avx512Lanes>::isa();
constexpr SignIsa kSignsAvx512 = SignLoops<Avx512Lanes>::isa();

}  // namespace
}  // namespace bitgrad::kernels::windows

#pragma GCC pop_options
#pragma GCC diagnostic pop

namespace bitgrad::kernels::windows {
const FewIsa& few_machine() { return kFewAvx512; }
const SignIsa& signs_machine() { return kSignsAvx512; }
}  // namespace bitgrad::kernels::windows
#endif
