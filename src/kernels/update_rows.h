// Family elementwise: the optimizer step of one parameter, a matrix, as a single kernel of a device:
// sums of a window -> gradient -> update -> clamps -> scales of rows -> codes -> layouts (docs/numerics.md section 6).
// Gradients, values and state are read once. Same bits as the individual kernels in sequence, which is the CPU
// (reference) implementation. Training on the CPU runs src/optim/row_step.cpp instead.
#pragma once

#include <optional>
#include <variant>

#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace bitgrad::kernels {

// The gradient that the update consumes, computed in this order:
//   x = sum / divisor;  x = x * s if times_scale;  x through the straight-through rule;
//   x = clamp(x, -clip_value, clip_value);  x = x * factor
// s, and the fields of the clip rule (dtype, rule, lo, hi, scale as in QuantizeArgs), describe the codes that the
// gradient is for.
struct RowGradient {
  const void* sums = nullptr;  // fp32 or bf16, dense
  bool bf16 = false;
  float divisor = 1;                  // the count of the window; 1: already divided
  float clip_value = 0;               // 0: off
  float factor = 1;                   // from the global-norm clip
  const StepScalars* live = nullptr;  // device only: uses live->factor instead of factor
  SteRule ste = SteRule::kIdentity;
  bool times_scale = false;
  DType dtype = dtypes::int8;
  CodeRule rule = CodeRule::kInverse;
  int64_t lo = 0, hi = 0;
  ScaleMap scale;
};

// How the updated values are quantized.
struct RowCodes {
  // Canonical codes of all rows. Ignores rows, cols, x, ldx, ste and mask, and with `fit` also scale. flags: OR of
  // kFlagNonFinite if a value or a fitted scale is NaN or Inf (such a scale becomes 1).
  QuantizeArgs codes;
  std::optional<RowFit> fit;   // nullopt: scales are given, per row or per tensor (col_step 0)
  float* scale = nullptr;      // output with `fit`, one per row
  int32_t* zero = nullptr;     // output with kAffine, one per row
  void* transposed = nullptr;  // optional: the codes in these layouts, written in full
  void* frag64 = nullptr;
};

// The scales of a fit, as quantize reads them.
ScaleMap row_scales(const RowCodes& codes);

// The update rule. n, w and g are ignored.
using RowUpdate = std::variant<SgdArgs, AdamArgs>;

struct UpdateRowsArgs {
  int64_t rows = 0, cols = 0;
  float* w = nullptr;  // the values, dense; modified in place, as is the state of the rule
  RowGradient gradient;
  RowUpdate update;
  std::optional<float> latent_clamp;  // w = clamp(w, -c, c), followed by
  std::optional<float> floor;         // w = max(w, floor)
  std::optional<RowCodes> codes;
};

// Whether update_rows supports the codes of a rule, both to clip gradients and to make codes.
constexpr bool sweeps_codes(CodeRule rule) {
#define BITGRAD_SWEEP_RULE(name) \
  if (rule == CodeRule::name) return true;
#include "kernels/sweep_rules.inc"
#undef BITGRAD_SWEEP_RULE
  return false;
}
// Whether update_rows supports a straight-through rule, for codes of `rule`.
constexpr bool sweeps_gradients(SteRule ste, CodeRule rule) {
  return ste == SteRule::kIdentity || ste == SteRule::kNone || ste == SteRule::kApproxSign ||
         (ste == SteRule::kClip && sweeps_codes(rule));
}

// Requires sweeps_gradients, and sweeps_codes if the clip rule, times_scale or codes are used; gradient and codes must
// then have the same rule. Non-finite gradients give the result of the formulas.
void update_rows(const UpdateRowsArgs& args);

}  // namespace bitgrad::kernels
