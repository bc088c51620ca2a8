// What all schemes ask of a spec, each with its error. Shared by the schemes.
#pragma once

#include <string_view>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// A code dtype, a legal granularity, eps and rounding, and no option of another scheme (alpha: binary; scale, offset:
// fixed).
void check_common(const Quantizer& quantizer, const QuantSpec& spec);
// Kind int or uint, else an error that names the scheme for the kind.
void require_integer(std::string_view scheme, DType dtype);
// As weights, int1 = {0, 1} with a zero at code 0 loses every weight or all negative ones.
void refuse_int1_weight(std::string_view scheme, DType dtype, bool weight);
// Quotient of the scheme: x * (1/s), or x / s with the modifier div.
inline CodeRule quotient_rule(const QuantSpec& spec) { return spec.div ? CodeRule::kDivide : CodeRule::kInverse; }

}  // namespace bitgrad::detail
