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
}  // namespace detail

}  // namespace bitgrad
