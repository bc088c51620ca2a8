// The wgmma kernels by name: one line of kernels.inc or fragment_kernels.inc each.
#pragma once

#include "cuda/kernels/gemm/wgmma/tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WGMMA_SS(name, ...) BITGRAD_GLOBAL void name(const BITGRAD_GRID_CONSTANT WgmmaArgs args);
#include "cuda/kernels/gemm/wgmma/kernels.inc"
#undef BITGRAD_WGMMA_SS
#define BITGRAD_WGMMA_RS(name, ...) BITGRAD_GLOBAL void name(const BITGRAD_GRID_CONSTANT WgmmaArgs args);
#include "cuda/kernels/gemm/wgmma/fragment_kernels.inc"
#undef BITGRAD_WGMMA_RS

}  // namespace bitgrad::cuda::gemm
