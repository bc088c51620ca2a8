// Checks of a spec that the schemes share, each with its error.
#pragma once

#include <string_view>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// A scheme whose fit and backward run on every device.
class BuiltinQuantizer : public Quantizer {
 public:
  bool on_device() const final { return true; }
  bool reads_bf16() const final { return true; }
};

// Options that are meaningful for a scheme; the others it refuses (scheme_fields.inc).
struct Options {
#define BITGRAD_QUANT_REFUSED(member, legal, why) bool member = legal;
#include "bitgrad/quant/scheme_fields.inc"
};
// Checks for a code dtype, a legal granularity, eps, rounding and straight-through rule, and no option that belongs to
// another scheme (alpha, alpha_grad: binary; scale, offset: fixed; first_clip: pact).
void check_common(const Quantizer& quantizer, const QuantSpec& spec, const Options& legal);
// Throws Error unless the kind is int or uint; the message names the scheme that fits the kind.
void require_integer(std::string_view scheme, DType dtype);
// Requires codes -1, 0, 1 of kind int.
void require_ternary(std::string_view scheme, DType dtype);
// Requires kind uint with codes from 0: the b-bit schemes of DoReFa-Net and PACT.
void require_uint(std::string_view scheme, DType dtype);
// Refuses int1 = {0, 1} for weights: with value 0 at code 0, all weights or all negative ones would be lost.
void refuse_int1_weight(std::string_view scheme, DType dtype, bool weight);
// The scheme's quotient: x * (1/s), or x / s with the modifier div.
inline CodeRule quotient_rule(const QuantSpec& spec) { return spec.div ? CodeRule::kDivide : CodeRule::kInverse; }

}  // namespace bitgrad::detail
