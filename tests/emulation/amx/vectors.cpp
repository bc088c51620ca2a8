// The AVX-512 code of the tile loop on emulated tiles: for machines with VBMI and GFNI, with or without AMX.
#include <immintrin.h>

#include "emulation/amx/isa.h"
#include "emulation/amx/tiles.h"

#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")

#include "kernels/gemm/tiles/amx_vectors.h"

namespace bitgrad::kernels::gemm_detail {

using namespace kernels;
namespace {
constexpr AmxIsa kIsa = vector_isa<EmulatedTiles>();
}  // namespace
}  // namespace bitgrad::kernels::gemm_detail

#pragma GCC pop_options

namespace bitgrad::kernels::gemm_detail {
const AmxIsa& amx_emulated_avx512() { return kIsa; }
}  // namespace bitgrad::kernels::gemm_detail
