// The tile kernels on machines without AMX: the loops of src/kernels/gemm/tiles/amx_loop.h on emulated tiles.
#pragma once

#include "kernels/gemm/tiles/amx.h"

namespace bitgrad::kernels::gemm_detail {

const AmxIsa& amx_emulated();         // portable code
const AmxIsa& amx_emulated_avx512();  // needs AVX-512, VBMI and GFNI

}  // namespace bitgrad::kernels::gemm_detail
