// Scales in the form that the quantize kernels read.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

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

}  // namespace bitgrad::detail
