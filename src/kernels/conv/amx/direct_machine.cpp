// The loops of direct convolutions on the hardware's tiles.
#include "kernels/conv/amx/direct.h"
#include "kernels/gemm/tiles/amx_tiles.h"

#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni,bmi2,prefer-vector-width=512")

#include "kernels/conv/amx/direct_loop.h"
#include "kernels/gemm/tiles/amx_small_loops.h"

namespace bitgrad::kernels::conv {
namespace {
struct Machine {};
constexpr DirectIsa kIsa =
    make_direct_isa<gemm_detail::MachineTiles, Machine>(&gemm_detail::AmxLoops<Machine>::transpose_bytes);
}  // namespace
#pragma GCC pop_options

const DirectIsa& direct_machine() { return kIsa; }
}  // namespace bitgrad::kernels::conv
