// QuantSpec: how to quantize a tensor, as plain data. docs/numerics.md section 2.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "bitgrad/base/key.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/kernels/quantize_rules.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

enum class Rounding : uint8_t { kNearest, kStochastic };
template <>
struct EnumNames<Rounding> {
  static constexpr std::string_view all[] = {"nearest", "stochastic"};
};
template <>
struct EnumNames<SteRule> {
  static constexpr std::string_view all[] = {"identity", "clip", "approx_sign", "tanh", "none"};
};

struct QuantSpec {
  DType dtype = dtypes::int8;
  std::string scheme = "symmetric";  // a line of quantizers.inc, or a registered name (register_quantizer)
  Granularity granularity = {};
  Rounding rounding = Rounding::kNearest;
  std::optional<SteRule> ste = {};  // nullopt: the default of the scheme
  bool alpha = false;               // binary: s = mean abs x per block (XNOR-Net); false: s = 1
  bool alpha_grad = false;          // binary with alpha: the gradient also flows through alpha (XNOR-Net, section 3)
  bool reduce_range = false;        // 8-bit integer codes use half their range: int8 -64 .. 63, uint8 0 .. 127
  float ste_t = 1.0f;               // rule tanh: current sharpness t; annealed_t computes it from training progress
  float ste_t_first = 0.1f, ste_t_last = 10.0f;  // rule tanh: t at the start and end of a run
  float first_clip = 10.0f;                      // pact: initial value of its learned clip alpha
  float scale = 1.0f;                            // fixed: s
  float offset = 0.0f;                           // fixed: m
  std::optional<float> eps = {};                 // lower bound of scales; nullopt: that of the scheme
  bool pow2 = false;                             // s -> 2^ceil(log2 s), before the zero point is computed
  bool div = false;                              // x / s instead of x * (1/s)
  DType scale_dtype = dtypes::fp32;              // fp16: scales and offsets are rounded to fp16, stored as fp32
  Attributes keys = {};                          // values of Quantizer::keys; absent keys have their defaults
  friend bool operator==(const QuantSpec&, const QuantSpec&) = default;
};

// How the learned parts of a scheme train: the step of LSQ, the clip of PACT.
struct LearnedSpec {
  float lr_factor = 1.0f;                  // relative to the run's learning rate
  std::optional<float> weight_decay = {};  // nullopt: the optimizer's
  friend bool operator==(const LearnedSpec&, const LearnedSpec&) = default;
};

inline ScaleRounding scale_rounding(const QuantSpec& spec) { return {spec.pow2, spec.scale_dtype == dtypes::fp16}; }

// The integer codes that a spec may use: the range of its dtype, or half of it with reduce_range.
struct CodeLimits {
  int64_t lo = 0, hi = 0;
};
CodeLimits code_limits(const QuantSpec& spec);

// Rule tanh (IR-Net: Qin et al. 2020, arXiv 1909.10788, eq. 11): t grows log-linearly from ste_t_first to ste_t_last as
// progress (steps done / total steps) goes from 0 to 1. Computed in double, rounded once.
float annealed_t(const QuantSpec& spec, double progress);

struct ObserverSpec {
  std::string name = "moving_average";  // min_max | moving_average | percentile | mse
  float momentum = 0.99f;               // moving_average: r = momentum * r + (1 - momentum) * new; first batch: r = new
  float percentile = 99.99f;            // percentile: of abs x, in (0, 100]
  friend bool operator==(const ObserverSpec&, const ObserverSpec&) = default;
};

// Goes over the members of QuantSpec (scheme_fields.inc), for readers and writers: v(key, member).

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
