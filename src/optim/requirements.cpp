#include "optim/requirements.h"

#include <cmath>

#include "nn/row_params.h"
#include "optim/matrix_parts.h"

namespace bitgrad::detail {

// Schemes that fit scales anew in every step must reproduce the values of their own codes, or weights would shrink or
// grow by themselves. Tested on four values.
bool keeps_its_values(const QuantSpec& spec) {
  const DeviceGuard cpu(Device::cpu());
  QuantSpec nearest = spec;
  nearest.rounding = Rounding::kNearest;
  const Tensor x = Tensor::from_elements({1, 4}, dtypes::fp32, std::vector<double>{1, 0.6, 0.1, 0});
  const Tensor codes = quantize_dynamic(nearest, x), again = quantize_dynamic(nearest, dequantize_tensor(codes));
  const std::vector<double> first = codes.values(), second = again.values();
  for (size_t i = 0; i < first.size(); ++i)
    if (std::fabs(first[i] - second[i]) > 1e-3 * std::fabs(first[i])) return false;
  return true;
}

namespace {

// Without a master, a parameter's gradients are those of its codes' values.
void check_passes(const std::string& where, const QuantSpec& quant) {
  const SteRule rule = ste_rule(quant);
  require(
      rule == SteRule::kIdentity || rule == SteRule::kClip, "optimizer", where,
      ": without a master the gradient is that of the codes, so its straight-through rule must be identity or clip");
}

void check_signs(const std::string& where, std::string_view rule, const Parameter& p) {
  require(p.low_bit() && p.spec().quant->dtype.kind() == DTypeKind::kSign &&
              find_quantizer(p.spec().quant->scheme).constant_params(*p.spec().quant),
          "optimizer", where, ": ", rule, " flips weights that are -1 and +1, got ", p.value(),
          p.low_bit() ? concat(", scheme ", p.spec().quant->scheme, p.spec().quant->alpha ? " with alpha" : "") : "",
          ". Give it dtype bint1, scheme binary without alpha; other parameters need another optimizer");
  require(p.spec().master == MasterKind::kNone, "optimizer", where, ": ", rule, " updates no master, got master ",
          enum_name(p.spec().master), ". Set master to none");
  require(!p.spec().latent_clamp && !p.spec().floor && p.spec().weight_decay.value_or(0) == 0, "optimizer", where, ": ",
          rule, " has no values to clamp or decay. Leave latent_clamp, floor and weight_decay out");
  check_passes(where, *p.spec().quant);
}

void check_codes(const std::string& where, const Parameter& p) {
  const QuantSpec& quant = *p.spec().quant;
  const DTypeKind kind = quant.dtype.kind();
  require(kind == DTypeKind::kInt || kind == DTypeKind::kUint, "optimizer", where,
          ": updates are rounded into codes of kind int or uint, got ", quant.dtype,
          kind == DTypeKind::kSign ? ". Use optimizer bop, or a master" : ". Use a master");
  require(p.learned().empty(), "optimizer", where, ": scheme ", quant.scheme,
          " learns from the position of the master between the codes. Use master fp32 or bf16");
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  require(quantizer.constant_params(quant) || scales_within_rows(quant.granularity), "optimizer", where,
          ": without a master scales are fitted row by row, got granularity ", quant.granularity,
          ". Use channel(0) or groups along a row, scheme fixed, or a master");
  QuantSpec stochastic = quant;
  stochastic.rounding = Rounding::kStochastic;
  quantizer.check(stochastic, /*weight=*/true);
  require(keeps_its_values(quant), "optimizer", where, ": scheme ", quant.scheme, " of ", quant.dtype,
          " does not reproduce the values of its own codes, so weights without a master would shrink or grow on their "
          "own. Use scheme absmax, symmetric_no_clip, affine, minmax_offset or fixed, or a master");
  check_passes(where, quant);
}

}  // namespace

void check_trainable(const Parameter& p, std::string_view rule_name, const UpdateRule& rule) {
  const std::string where = concat("parameter '", p.path(), '\'');
  const Device device = p.value().device();
  if (!device.is_cpu() && !rule.on_device())
    fail_with(ErrorCode::kDevice, "optimizer", where, " is on ", to_string(device), ": the update of '", rule_name,
              "' needs CPU memory. Override UpdateRule::on_device if it uses kernels only, or train on "
              "device cpu");
  if (rule.whole_matrix()) stacked_rows(p);
  if (rule.flips_signs()) return check_signs(where, rule_name, p);
  if (p.low_bit() && p.spec().master == MasterKind::kNone) check_codes(where, p);
}

}  // namespace bitgrad::detail
