// The listed kernels of family quantize. Contract: quantize (kernels/quantize.h).
#pragma once

#include "cuda/kernels/contracts.h"

namespace bitgrad::cuda {

void quantize_any_cuda(const QuantizeArgs& args);
void quantize_sign_cuda(const QuantizeArgs& args);

}  // namespace bitgrad::cuda
