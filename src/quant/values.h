// Values between layers, fp32 or bf16, as quantizers read them.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

// x as values for computation, dense: bf16 is widened to fp32 in workspace memory; other dtypes return x itself.
Tensor widened(const Tensor& x);

namespace detail {
// quantize_tensor, or without params quantize_dynamic, for x of fp32 or bf16, whose codes are those of the widened
// values.
Tensor quantize_values(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                       const QuantizeOptions& options);
// quantize_dynamic by one kernel of the current device that computes scales and codes together. Returns an undefined
// tensor, with nothing written, if there is none: on the CPU, for most schemes, and if a mask or random rounding is
// requested. Bits and errors equal those of fit and quantize_tensor. x: fp32 or bf16, canonical, without scales.
Tensor quantize_fused_on_device(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                                const QuantizeOptions& options);
}  // namespace detail

}  // namespace bitgrad
