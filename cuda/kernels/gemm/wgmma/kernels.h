// The wgmma kernels by name, from ss_kernels.inc and rs_kernels.inc, and the table of all of them (plan.cpp).
#pragma once

#include "cuda/kernels/gemm/wgmma/plan.h"
#include "cuda/kernels/gemm/wgmma/tile.h"

namespace bitgrad::cuda::gemm {

#define BITGRAD_WGMMA_SS(name, ...) BITGRAD_GLOBAL void name(const BITGRAD_GRID_CONSTANT WgmmaArgs args);
#include "cuda/kernels/gemm/wgmma/ss_kernels.inc"
#undef BITGRAD_WGMMA_SS
#define BITGRAD_WGMMA_RS(name, ...) BITGRAD_GLOBAL void name(const BITGRAD_GRID_CONSTANT WgmmaArgs args);
#include "cuda/kernels/gemm/wgmma/rs_kernels.inc"
#undef BITGRAD_WGMMA_RS

struct NamedWgmmaKernel {
  WgmmaKernel run;
  const char* name;
  WgmmaType type;
  int bits;  // width of a row operand in layout frag64; 8: both operands from shared memory
  TileForm form;
  WgmmaStore store;
};
// Throws Error(kBug) if the lists have no such kernel.
const NamedWgmmaKernel& wgmma_kernel(WgmmaType type, int bits, TileForm form, WgmmaStore store);

}  // namespace bitgrad::cuda::gemm
