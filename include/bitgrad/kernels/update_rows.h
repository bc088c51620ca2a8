// Family elementwise: the optimizer step of one parameter, a matrix, in one kernel of a device:
// sums of a window -> gradient -> update -> clamps -> scales of rows -> codes -> layouts (docs/numerics.md section 6).
// Gradients, values and state are read once. Same bits as the single kernels in sequence, which is the CPU's
// (reference) implementation; training on the CPU runs src/optim/row_step.cpp instead.
#pragma once

#include <optional>
#include <variant>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/quantize.h"

namespace bitgrad::kernels {

// The gradient that the update takes, in this order:
//   x = sum / divisor;  x = x * s where times_scale;  x through the straight-through rule;
//   x = clamp(x, -clip_value, clip_value);  x = x * factor
// s, and what rule clip reads (dtype, rule, lo, hi, scale as in QuantizeArgs), are those of the codes that the gradient
// is of.
struct RowGradient {
  const void* sums = nullptr;  // fp32 or bf16, dense
  bool bf16 = false;
  float divisor = 1;                  // the number of samples; 1: finished
  float clip_value = 0;               // 0: off
  float factor = 1;                   // of the global norm
  const StepScalars* live = nullptr;  // of a device: live->factor in place of factor
  SteRule ste = SteRule::kIdentity;
  bool times_scale = false;
  DType dtype = dtypes::int8;
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;
  ScaleMap scale;
};

// How the scale (and zero point) of a row follows from its numbers: the formulas of the schemes, docs/numerics.md
// section 2. Of a row without columns: s = eps, z = 0.
struct RowFit {
  enum Rule : uint8_t {
    kAbsmax,           // max(a / hi, eps), a = max abs x
    kSymmetric,        // max(max(-l, h) / ((hi - lo) / 2), eps), l = min(0, min x), h = max(0, max x)
    kSymmetricNoClip,  // max(max(l / lo, h / hi), eps)
    kAffine,           // max((h - l) / (hi - lo), eps); z = clamp(lo - rint(l / s), lo, hi)
    kMeanAbs,          // max(mean abs x, eps), the sum in the order of section 8
    kMeanPositive,     // max(mean of x over x > 0, eps), eps where there is none
  };
  Rule rule = kAbsmax;
  float lo = 0, hi = 0;  // the codes in use
  float eps = 0x1p-126f;
  ScaleRounding rounding = {};
};

// The codes of the numbers that the update leaves.
struct RowCodes {
  // Canonical codes of all rows. Not read: rows, cols, x, ldx, ste, mask; with `fit` its scale. flags: OR of
  // kFlagNonFinite where a number, or a fitted scale, is NaN or Inf (such a scale becomes 1).
  QuantizeArgs codes;
  std::optional<RowFit> fit;   // none: scales are given, each of whole rows (col_step 0)
  float* scale = nullptr;      // out, one a row, where there is a fit
  int32_t* zero = nullptr;     // out, one a row, kAffine
  void* transposed = nullptr;  // optional: the codes in these layouts, written whole
  void* frag64 = nullptr;
};

// The scales of a fit, as quantize reads them.
ScaleMap row_scales(const RowCodes& codes);

// The rule that moves the numbers. n, w and g are not read.
using RowUpdate = std::variant<SgdArgs, AdamArgs>;

struct UpdateRowsArgs {
  int64_t rows = 0, cols = 0;
  float* w = nullptr;  // the values, dense; state of the rule too
  RowGradient gradient;
  RowUpdate update;
  std::optional<float> latent_clamp;  // w = clamp(w, -c, c), then
  std::optional<float> floor;         // w = max(w, floor)
  std::optional<RowCodes> codes;
};

// Whether the sweep knows the codes of a rule: then gradients may be clipped by them, and they are made here.
constexpr bool sweeps_codes(CodeRule rule) {
#define BITGRAD_SWEEP_RULE(name) \
  if (rule == CodeRule::name) return true;
#include "bitgrad/kernels/sweep_rules.inc"
#undef BITGRAD_SWEEP_RULE
  return false;
}
// Whether it knows a straight-through rule, for codes of `rule`.
constexpr bool sweeps_gradients(SteRule ste, CodeRule rule) {
  return ste == SteRule::kIdentity || ste == SteRule::kNone || ste == SteRule::kApproxSign ||
         (ste == SteRule::kClip && sweeps_codes(rule));
}

// Only where sweeps_gradients, and sweeps_codes of the one rule of gradient and codes where rule clip, times_scale or
// codes are asked for. Gradients that are not finite give what the formulas give.
void update_rows(const UpdateRowsArgs& args);

}  // namespace bitgrad::kernels
