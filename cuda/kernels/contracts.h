// The contracts of bitgrad::kernels, by their short names inside bitgrad::cuda, and the launches that the table of CUDA
// has: name_cuda(...) for each line of kernel_table.inc, with the contract and parameters of line `name`; and the
// listed kernels of families with alternatives (cuda/register.cpp).
#pragma once

#include "bitgrad/dtype/transpose.h"
#include "kernels/kernel_table.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

using namespace kernels;

#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) result name##_cuda parameters;
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL

// Contracts: reduce, quantize and pack.
void reduce_lanes_cuda(const ReduceArgs& args);
void quantize_any_cuda(const QuantizeArgs& args);
void quantize_sign_cuda(const QuantizeArgs& args);
void pack_canonical_cuda(const PackArgs& args);
void pack_transposed_cuda(const PackArgs& args);
void pack_planes_cuda(const PackArgs& args);
void pack_frag64_cuda(const PackArgs& args);
// The transposition used by tensors. Elements have 1 .. 8, 16, 32 or 64 bits. Rows of `out` have at least the bytes of
// a row in memory.
void transpose_cuda(const TransposeArgs& args);

// Calls f with the elements as const float* or const uint16_t* (bf16).
template <typename F>
void with_elements(const kernels::FloatsIn& x, F&& f) {
  x.bf16() ? f(static_cast<const uint16_t*>(x.data)) : f(x.fp32());
}
template <typename F>
void with_elements(const kernels::FloatsOut& y, F&& f) {
  y.bf16() ? f(static_cast<uint16_t*>(y.data)) : f(y.fp32());
}

}  // namespace bitgrad::cuda
