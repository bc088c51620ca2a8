// Scales as the quantize kernel reads them.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// Holds the tensors that its map points to, beside the params' own.
class KernelScales {
 public:
  // params: of a [rows, cols] matrix, as attached to `codes_or_numbers`.
  KernelScales(const CodeRange& range, const Tensor& codes_or_numbers);
  const ScaleMap& map() const { return map_; }

 private:
  void from_lowest(const CodeRange& range, const QuantParams& params);

  ScaleMap map_;
  Tensor lowest_, zero_, steps_;
};

}  // namespace bitgrad::detail
