#include "quant/checks.h"

#include <cmath>

#include "quant/blocks.h"

namespace bitgrad::detail {
namespace {

void check_granularity(std::string_view scheme, const Granularity& g) {
  if (g.kind == Granularity::kChannel || g.kind == Granularity::kGroup)
    require(g.axis >= -1 && g.axis <= 1, scheme, "axis of the granularity: got ", g.axis,
            ", expected 0 (rows) or 1 (columns).");
  if (g.kind == Granularity::kGroup)
    require(g.group >= 1, scheme, "group size: got ", g.group, ", expected at least 1.");
}

void check_rounding(std::string_view scheme, const QuantSpec& spec, CodeRule rule) {
  if (spec.rounding != Rounding::kStochastic) return;
  const bool rounds = rule == CodeRule::kInverse || rule == CodeRule::kDivide || rule == CodeRule::kOffset;
  require(rounds, scheme, "rounding of dtype ", spec.dtype,
          ": got stochastic, expected nearest. Only schemes that round to integers can be stochastic.");
}

}  // namespace

void check_common(const Quantizer& quantizer, const QuantSpec& spec) {
  const std::string_view scheme = quantizer.name();
  require(spec.dtype.is_code(), scheme, "dtype: got ", spec.dtype,
          ", expected one of at most 8 bits, such as int8, ternary or bint1.");
  check_granularity(scheme, spec.granularity);
  if (spec.eps)
    require(std::isfinite(*spec.eps) && *spec.eps >= kSmallestNormal, scheme, "eps: got ", *spec.eps,
            ", expected at least 2^-126 = ", kSmallestNormal, '.');
  require(!spec.alpha || scheme == "binary", scheme, "alpha is an option of scheme binary: got alpha with dtype ",
          spec.dtype, ". The scheme finds its own scale.");
  require(scheme == "fixed" || (spec.scale == 1.0f && spec.offset == 0.0f), scheme,
          "scale and offset are constants of scheme fixed: got scale ", spec.scale, ", offset ", spec.offset,
          ". The scheme finds its own scale.");
  check_rounding(scheme, spec, quantizer.code_range(spec).rule);
}

void require_integer(std::string_view scheme, DType dtype) {
  const DTypeKind kind = dtype.kind();
  require(kind != DTypeKind::kSign, scheme, "dtype ", dtype,
          ": got kind sign, expected int or uint. Use scheme binary.");
  require(kind != DTypeKind::kCodebook, scheme, "dtype ", dtype,
          ": got kind codebook, expected int or uint. Use scheme codebook.");
}

void refuse_int1_weight(std::string_view scheme, DType dtype, bool weight) {
  require(
      !weight || dtype.bits() != 1 || dtype.kind() != DTypeKind::kUint, scheme, "dtype of weights: got ", dtype,
      " = {0, 1}, where weights would become 0. Use scheme step or minmax_offset, or dtype bint1 with scheme binary.");
}

}  // namespace bitgrad::detail
