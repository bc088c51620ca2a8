// Goes over the members of QuantSpec (scheme_fields.inc), for readers and writers: v(key, member).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "bitgrad/quant/scheme.h"

namespace bitgrad {

// Those that any scheme may refuse (Quantizer::check).
template <typename V, typename S>
void visit_quant_options(V&& v, S& s) {
#define BITGRAD_QUANT_OPTION(member, ...) v(#member, s.member);
#include "bitgrad/quant/scheme_fields.inc"
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
}

// Whether files leave this member out: it is an option that the first files lack, at its default.
inline bool is_left_out(std::string_view member, const QuantSpec& s) {
#define BITGRAD_QUANT_LATER(name, ...) \
  if (member == #name) return s.name == QuantSpec().name;
#include "bitgrad/quant/scheme_fields.inc"
  return false;
}

// The first option that is not at its default, apart from these; empty: none. For users that know only some options,
// such as an export.
inline std::string_view other_option(const QuantSpec& s, std::initializer_list<std::string_view> known) {
#define BITGRAD_QUANT_OPTION(name, ...) \
  if (!(s.name == QuantSpec().name) && std::find(known.begin(), known.end(), #name) == known.end()) return #name;
#include "bitgrad/quant/scheme_fields.inc"
  return {};
}

}  // namespace bitgrad
