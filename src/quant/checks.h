// What all schemes ask of a spec, each with its error. Shared by the schemes.
#pragma once

#include <string_view>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad::detail {

// A scheme whose fit and backward run on every device.
class BuiltinQuantizer : public Quantizer {
 public:
  bool on_device() const final { return true; }
};

// Options that have a meaning for a scheme.
struct Options {
  bool pow2 = false;
  bool div = false;  // the scheme divides x by a scale, or can
  bool reduce_range = false;
  bool fp16 = false;  // scale_dtype
};
// A code dtype, a legal granularity, eps, rounding and straight-through rule, and no option of another scheme (alpha,
// alpha_grad: binary; scale, offset: fixed; first_clip: pact).
void check_common(const Quantizer& quantizer, const QuantSpec& spec, const Options& legal);
// Kind int or uint, else an error that names the scheme for the kind.
void require_integer(std::string_view scheme, DType dtype);
// Codes -1, 0, 1 of kind int.
void require_ternary(std::string_view scheme, DType dtype);
// Kind uint, codes from 0: the b-bit schemes of DoReFa-Net and PACT.
void require_uint(std::string_view scheme, DType dtype);
// As weights, int1 = {0, 1} with a zero at code 0 loses every weight or all negative ones.
void refuse_int1_weight(std::string_view scheme, DType dtype, bool weight);
// Quotient of the scheme: x * (1/s), or x / s with the modifier div.
inline CodeRule quotient_rule(const QuantSpec& spec) { return spec.div ? CodeRule::kDivide : CodeRule::kInverse; }

}  // namespace bitgrad::detail
