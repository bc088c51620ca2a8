// Goes over the members of QuantSpec (scheme_fields.inc), for readers and writers: v(key, member).
#pragma once

#include "bitgrad/quant/scheme.h"

namespace bitgrad {

// Those that any scheme may refuse (Quantizer::check).
template <typename V, typename S>
void visit_quant_options(V&& v, S& s) {
#define BITGRAD_QUANT_OPTION(member, ...) v(#member, s.member);
#define BITGRAD_QUANT_FIELD(member, ...)
#include "bitgrad/quant/scheme_fields.inc"
#undef BITGRAD_QUANT_OPTION
#undef BITGRAD_QUANT_FIELD
}

// All but alpha, the sharpness of rule tanh and the scheme's own keys, which configurations and files write
// differently.
template <typename V, typename S>
void visit_quant(V&& v, S& s) {
  v("dtype", s.dtype);
  v("scheme", s.scheme);
  v("granularity", s.granularity);
#define BITGRAD_QUANT_OPTION(member, ...) v(#member, s.member);
#define BITGRAD_QUANT_FIELD(member, ...) v(#member, s.member);
#include "bitgrad/quant/scheme_fields.inc"
#undef BITGRAD_QUANT_OPTION
#undef BITGRAD_QUANT_FIELD
}

}  // namespace bitgrad
