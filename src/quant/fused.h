// Codes, and scales fitted to the same numbers, from one read.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// quantize_dynamic by a kernel of the current device that makes scales and codes together; undefined, and nothing has
// happened, where there is none: on the CPU, for most schemes, and where a mask or draws are wanted. Bits and errors
// are those of fit and quantize_tensor. x: fp32, canonical, without scales.
Tensor quantize_fused_on_device(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                                const QuantizeOptions& options);

}  // namespace bitgrad::detail
