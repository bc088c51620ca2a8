// The launches of family quantize. Contracts: kernels/quantize.h and fused_quantize.h.
#pragma once

#include <type_traits>

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

void quantize_any_cuda(const QuantizeArgs& args);
void quantize_sign_cuda(const QuantizeArgs& args);

#define BITGRAD_CUDA_KERNEL(name) std::remove_pointer_t<decltype(KernelTable::name)> name##_cuda;
#include "cuda/kernels/quantize/kernels.inc"
#undef BITGRAD_CUDA_KERNEL

}  // namespace bitgrad::cuda
