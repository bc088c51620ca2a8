#include "quant/checks.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/math.h"
#include "bitgrad/quant/scheme.h"
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
  require(rounds(rule), scheme, "rounding of dtype ", spec.dtype,
          ": got stochastic, expected nearest. Only schemes that round to integers can be stochastic.");
}

void check_rule(std::string_view scheme, const QuantSpec& spec, SteRule rule) {
  if (rule != SteRule::kTanh) return;
  require(
      !spec.ste || spec.dtype.kind() == DTypeKind::kSign, scheme, "straight-through rule of dtype ", spec.dtype,
      ": got tanh, expected another one. Rule tanh follows the sign: it is for dtypes of kind sign, such as bint1.");
  for (const float t : {spec.ste_t, spec.ste_t_first, spec.ste_t_last})
    require(std::isfinite(t) && t > 0.0f, scheme, "sharpness t of rule tanh: got ", t, ", expected a positive number.");
}

std::string_view shown(bool x) { return x ? "true" : "false"; }
DType shown(DType x) { return x; }
template <NamedEnum E>
std::string_view shown(E x) {
  return enum_name(x);
}

// A member whose line lists names holds one of them.
void check_names(std::string_view scheme, const QuantSpec& spec, std::string_view member, DType x,
                 std::string_view names) {
  const std::string_view name = x.name();
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ',') && (end == names.size() || names[end] == ',')) return;  // for every token
  }
  std::string all(names);
  std::replace(all.begin(), all.end(), ',', ' ');
  all.replace(all.rfind(' '), 1, " or ");
  fail(scheme, member, " with dtype ", spec.dtype, ": got ", x, ", expected ", all, '.');
}
template <typename T>
void check_names(std::string_view, const QuantSpec&, std::string_view, const T&, std::string_view) {}

void check_options(std::string_view scheme, const QuantSpec& spec, const Options& legal) {
  static const QuantSpec kDefaults;
#define BITGRAD_QUANT_OPTION(member, type, names, ...) check_names(scheme, spec, #member, spec.member, names);
#define BITGRAD_QUANT_REFUSED(member, is_legal, why)                                                             \
  require(legal.member || spec.member == kDefaults.member, scheme, #member " with dtype ", spec.dtype, ": got ", \
          shown(spec.member), ", expected ", shown(kDefaults.member), ". " why);
#include "bitgrad/quant/scheme_fields.inc"
  require(!spec.reduce_range || spec.dtype.bits() == 8, scheme, "dtype with reduce_range: got ", spec.dtype,
          ", expected one of 8 bits, such as int8.");
  require(scheme == "pact" || spec.first_clip == kDefaults.first_clip, scheme,
          "first_clip is an option of scheme pact: got ", spec.first_clip, '.');
}

}  // namespace

void check_common(const Quantizer& quantizer, const QuantSpec& spec, const Options& legal) {
  const std::string_view scheme = quantizer.name();
  require(spec.dtype.is_code(), scheme, "dtype: got ", spec.dtype,
          ", expected one of at most 8 bits, such as int8, ternary or bint1.");
  check_granularity(scheme, spec.granularity);
  if (spec.eps)
    require(std::isfinite(*spec.eps) && *spec.eps >= kSmallestNormal, scheme, "eps: got ", *spec.eps,
            ", expected at least 2^-126 = ", kSmallestNormal, '.');
  require(!spec.alpha || scheme == "binary", scheme, "alpha is an option of scheme binary: got alpha with dtype ",
          spec.dtype, ". The scheme finds its own scale.");
  require(!spec.alpha_grad || spec.alpha, scheme, "alpha_grad with dtype ", spec.dtype,
          ": got true without alpha, expected scheme binary with alpha.");
  check_options(scheme, spec, legal);
  require(scheme == "fixed" || (spec.scale == 1.0f && spec.offset == 0.0f), scheme,
          "scale and offset are constants of scheme fixed: got scale ", spec.scale, ", offset ", spec.offset,
          ". The scheme finds its own scale.");
  check_rounding(scheme, spec, quantizer.code_range(spec).rule);
  check_rule(scheme, spec, spec.ste.value_or(quantizer.default_ste()));
}

void require_integer(std::string_view scheme, DType dtype) {
  const DTypeKind kind = dtype.kind();
  require(kind != DTypeKind::kSign, scheme, "dtype ", dtype,
          ": got kind sign, expected int or uint. Use scheme binary.");
  require(kind != DTypeKind::kCodebook, scheme, "dtype ", dtype,
          ": got kind codebook, expected int or uint. Use scheme codebook.");
}

void require_ternary(std::string_view scheme, DType dtype) {
  const DTypeInfo& info = dtype.info();
  require(info.kind == DTypeKind::kInt && info.qmin == -1 && info.qmax == 1, scheme, "dtype: got ", dtype,
          ", expected ternary, or a dtype of kind int with codes -1, 0 and 1.");
}

void require_uint(std::string_view scheme, DType dtype) {
  const DTypeInfo& info = dtype.info();
  require(info.kind == DTypeKind::kUint && info.qmin == 0 && info.qmax > 0, scheme, "dtype: got ", dtype,
          ", expected kind uint, such as int1, uint2 or uint8.");
}

void refuse_int1_weight(std::string_view scheme, DType dtype, bool weight) {
  require(
      !weight || dtype.bits() != 1 || dtype.kind() != DTypeKind::kUint, scheme, "dtype of weights: got ", dtype,
      " = {0, 1}, where weights would become 0. Use scheme step or minmax_offset, or dtype bint1 with scheme binary.");
}

}  // namespace bitgrad::detail

// ---- functions of a QuantSpec alone: the codes in use and the annealed sharpness of the rule tanh.
namespace bitgrad {

CodeLimits code_limits(const QuantSpec& spec) {
  const DTypeInfo& info = spec.dtype.info();
  return spec.reduce_range ? CodeLimits{info.qmin / 2, info.qmax / 2} : CodeLimits{info.qmin, info.qmax};
}

float annealed_t(const QuantSpec& spec, double progress) {
  const double first = static_cast<double>(spec.ste_t_first), last = static_cast<double>(spec.ste_t_last);
  const double p = std::clamp(progress, 0.0, 1.0);
  if (p == 0.0) return spec.ste_t_first;
  if (p == 1.0) return spec.ste_t_last;
  const double slope = static_cast<double>(math::log(static_cast<float>(last / first)));
  return static_cast<float>(first * static_cast<double>(math::exp(static_cast<float>(p * slope))));
}

}  // namespace bitgrad
