// How a tensor is to be quantized: plain data. docs/numerics.md section 2.
#pragma once

#include <optional>
#include <string>

#include "bitgrad/base/key.h"
#include "bitgrad/kernels/quantize.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

enum class Rounding : uint8_t { kNearest, kStochastic };

struct QuantSpec {
  DType dtype = dtypes::int8;
  std::string scheme = "symmetric";  // a line of quantizers.inc, or a name given to register_quantizer
  Granularity granularity = {};
  Rounding rounding = Rounding::kNearest;
  std::optional<SteRule> ste = {};  // none: the scheme's own default
  bool alpha = false;               // binary: s = mean abs x per granularity (XNOR-Net); false: s = 1
  bool alpha_grad = false;          // binary with alpha: the gradient flows through alpha too (XNOR-Net, section 3)
  bool reduce_range = false;        // 8-bit integer codes use half their range: int8 -64 .. 63, uint8 0 .. 127
  float ste_t = 1.0f;               // rule tanh: the sharpness t in use; annealed_t gives it from the progress of a run
  float ste_t_first = 0.1f, ste_t_last = 10.0f;
  float first_clip = 10.0f;  // pact: first value of its learned clip alpha
  float scale = 1.0f;        // fixed: s and m
  float offset = 0.0f;
  std::optional<float> eps = {};     // floor of scales; none: the scheme's own
  bool pow2 = false;                 // s -> 2^ceil(log2 s), before the zero point
  bool div = false;                  // x / s in place of x * (1/s)
  DType scale_dtype = dtypes::fp32;  // fp16: scales and offsets are fp16 numbers, held as fp32
  Attributes keys = {};              // Quantizer::keys; those left out have their defaults
  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

inline ScaleRounding scale_rounding(const QuantSpec& spec) { return {spec.pow2, spec.scale_dtype == dtypes::fp16}; }

// The integer codes that a spec may use: those of its dtype, or with reduce_range half of them.
struct CodeLimits {
  int64_t lo = 0, hi = 0;
};
CodeLimits code_limits(const QuantSpec& spec);

// Rule tanh (IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11): t grows from ste_t_first to ste_t_last, evenly in its
// logarithm, while progress goes from 0 to 1 (steps done / steps of the run). Computed in double, rounded once.
float annealed_t(const QuantSpec& spec, double progress);

}  // namespace bitgrad
