// The launches of family pack, and the transposition used by tensors.
#pragma once

#include "bitgrad/dtype/transpose.h"
#include "cuda/kernels/contracts.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

// Elements have 1 .. 8, 16, 32 or 64 bits. Rows of `out` have at least the bytes of a row in memory.
void transpose_cuda(const TransposeArgs& args);

#define BITGRAD_CUDA_PACK_KERNEL(name, layout) void name(const PackArgs& args);
#include "cuda/kernels/pack/kernels.inc"
#undef BITGRAD_CUDA_PACK_KERNEL

}  // namespace bitgrad::cuda
