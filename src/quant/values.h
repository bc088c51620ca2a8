// What quantizers share with kernels and ops: values between layers, fp32 or bf16, and scales in the form that the
// quantize kernels read.
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
// The values of codes with scales, into rows of fp32 of the same shape.
void dequantize_rows(const Tensor& codes, const Tensor& to);
// quantize_dynamic by one kernel of the current device that computes scales and codes together. Returns an undefined
// tensor, with nothing written, if there is none: on the CPU, for most schemes, and if a mask or random rounding is
// requested. Bits and errors equal those of fit and quantize_tensor. x: fp32 or bf16, canonical, without scales.
Tensor quantize_fused_on_device(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                                const QuantizeOptions& options);

// Owns the tensors that its map points to, except those owned by the params.
class KernelScales {
 public:
  // Uses the params attached to `codes_or_numbers`, a [rows, cols] matrix.
  KernelScales(const CodeRange& range, const Tensor& codes_or_numbers);
  const ScaleMap& map() const { return map_; }

 private:
  void from_lowest(const CodeRange& range, const QuantParams& params);

  ScaleMap map_;
  Tensor lowest_, zero_, steps_;
};

}  // namespace detail

}  // namespace bitgrad
