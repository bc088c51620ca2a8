// The launches of family pack, and the transposition used by tensors.
#pragma once

#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/contracts.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

// Elements have 1 .. 8, 16, 32 or 64 bits. Rows of `out` have at least the bytes of a row in memory.
void transpose_cuda(const TransposeArgs& args);

void pack_canonical_cuda(const PackArgs& args);
void pack_transposed_cuda(const PackArgs& args);
void pack_planes_cuda(const PackArgs& args);
void pack_frag64_cuda(const PackArgs& args);

}  // namespace bitgrad::cuda
