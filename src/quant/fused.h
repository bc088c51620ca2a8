// Codes and the scales fitted to the same values, from one read.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// quantize_dynamic by one kernel of the current device that computes scales and codes together. Returns an undefined
// tensor, with nothing written, if there is none: on the CPU, for most schemes, and if a mask or random rounding is
// requested. Bits and errors equal those of fit and quantize_tensor. x: fp32 or bf16, canonical, without scales.
Tensor quantize_fused_on_device(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                                const QuantizeOptions& options);

}  // namespace bitgrad::detail
