// The tile loop on the hardware's tiles.
#include "base/simd.h"
#include "kernels/gemm/tiles/amx_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")

#include "kernels/gemm/tiles/amx_vectors.h"

namespace bitgrad::kernels::gemm_detail {
namespace {
constexpr AmxIsa kIsa = vector_isa<MachineTiles>();
}  // namespace
#pragma GCC pop_options

const AmxIsa& amx_machine() { return kIsa; }
}  // namespace bitgrad::kernels::gemm_detail
