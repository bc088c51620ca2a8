// A quantization of this scheme, dtype and granularity; all else by default.
#pragma once

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::test {

inline QuantSpec spec_of(const char* scheme, DType dtype, const Granularity& granularity = Granularity::tensor()) {
  QuantSpec spec;
  spec.scheme = scheme;
  spec.dtype = dtype;
  spec.granularity = granularity;
  return spec;
}

}  // namespace bitgrad::test
