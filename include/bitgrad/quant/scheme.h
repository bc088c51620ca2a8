// How a tensor is to be quantized: plain data. docs/numerics.md section 2.
#pragma once

#include <optional>
#include <string>

#include "bitgrad/kernels/quantize.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

enum class Rounding : uint8_t { kNearest, kStochastic };

struct QuantSpec {
  DType dtype = dtypes::int8;
  std::string scheme = "symmetric";  // a line of quantizers.inc, or a name given to register_quantizer
  Granularity granularity;
  Rounding rounding = Rounding::kNearest;
  std::optional<SteRule> ste;  // none: the scheme's own default
  bool alpha = false;          // binary: s = mean abs x per granularity (XNOR-Net); false: s = 1
  float scale = 1.0f;          // fixed: s and m
  float offset = 0.0f;
  std::optional<float> eps;  // floor of scales; none: the scheme's own
  bool pow2 = false;         // s -> 2^ceil(log2 s), before the zero point
  bool div = false;          // x / s in place of x * (1/s)
};

}  // namespace bitgrad
