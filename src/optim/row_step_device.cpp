// The step of one parameter on a device other than the CPU: one kernel (kernels/update_rows.h) does as much as it can;
// the other parts are separate kernels before and after it.
#include <vector>

#include "bitgrad/base/step_scalars.h"
#include "kernels/elementwise.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/row_step.h"
#include "quant/values.h"

namespace bitgrad::detail {
namespace {

// The straight-through rule for the kernel. Codebooks do not clamp, so clip becomes identity.
SteRule rule_of(const QuantSpec& quant, const CodeRange& range) {
  const SteRule rule = ste_rule(quant);
  return rule == SteRule::kClip && range.rule == CodeRule::kCodebook ? SteRule::kIdentity : rule;
}

std::string gradient_apart(const Parameter& p) {
  if (!p.low_bit() || !p.has_master()) return "";
  const QuantSpec& quant = *p.spec().quant;
  const Quantizer& quantizer = find_quantizer(quant.scheme);
  const CodeRange range = quantizer.code_range(quant);
  if (quantizer.own_backward(quant)) return concat("scheme ", quant.scheme, " has its own backward");
  if (!kernels::sweeps_gradients(rule_of(quant, range), range.rule) ||
      (quant.alpha && !kernels::sweeps_codes(range.rule)))
    return concat("its straight-through rule, of codes by scheme ", quant.scheme, ", needs a separate kernel");
  return "";
}

}  // namespace

RowStep::Apart RowStep::apart() const {
  Apart out;
  out.gradient = gradient_apart(p_);
  const std::vector<float*> no_state(swept_moments().size(), nullptr);
  if (p_.shape().numel() == 0)
    out.update = "it has no values";
  else if (!rule_.row_update(piece(0, nullptr, nullptr, no_state)))
    out.update = concat("the update rule of family ", rule_.family(), " needs a separate kernel");
  if (!p_.low_bit()) return out;
  out.codes = narrow_master() ? "its master is rounded to bf16 before requantization" : Requantization::not_swept(p_);
  return out;
}

std::string RowStep::not_one_kernel() const {
  const Apart parts = apart();
  if (rule_.whole_matrix())
    return concat("the update rule of family ", rule_.family(), " needs the whole gradient first");
  for (const std::string* why : {&parts.update, &parts.gradient})
    if (!why->empty()) return *why;
  if (kind_ != MomentKind::kFp32 && !swept_moments().empty())
    return concat("its moments are widened from ", enum_name(kind_), " and rounded again");
  if (!p_.low_bit()) return "";
  if (!p_.has_master()) return "its values are dequantized from its codes first";
  if (!scales_are_row_local(p_))
    return concat("scales of granularity ", p_.spec().quant->granularity, " need all rows first");
  if (!p_.learned().empty()) return "learned parts are updated before requantization";
  return parts.codes;
}

// The work of finish_rows, as arguments for the kernel.
void RowStep::gradient_args(const Tensor& x, kernels::UpdateRowsArgs& args, std::optional<KernelScales>& scales) const {
  kernels::RowGradient& g = args.gradient;
  g.divisor = static_cast<float>(now_.count);
  g.clip_value = spec_.clip_value;
  if (!p_.low_bit() || !p_.has_master()) return;
  const QuantSpec& quant = *p_.spec().quant;
  const CodeRange range = find_quantizer(quant.scheme).code_range(quant);
  g.ste = rule_of(quant, range);
  g.times_scale = quant.alpha;
  g.dtype = quant.dtype;
  g.rule = range.rule;
  g.lo = range.lo;
  g.hi = range.hi;
  if (g.ste != SteRule::kClip && !g.times_scale) return;
  scales.emplace(range, x.with_quant(p_.value().quant()));
  g.scale = scales->map();
}

void RowStep::run_whole(const Tensor& sums, bool finished) {
  const Apart parts = apart();
  const Tensor x = number_rows(p_, 0, sums.rows());
  if (!parts.update.empty()) return chunk(0, widened(as_matrix(sums)), x, finished);
  kernels::UpdateRowsArgs args;
  args.rows = x.rows();
  args.cols = x.cols();
  args.w = x.as<float>();
  Tensor g = sums;
  std::optional<KernelScales> scales;
  if (!finished && parts.gradient.empty()) {
    gradient_args(x, args, scales);
  } else if (!finished) {
    g = widened(as_matrix(sums));
    finish_chunk(p_, spec_, now_.count, 0, g, x, /*check=*/false);
  }
  args.gradient.sums = g.data();
  args.gradient.bf16 = g.dtype() == dtypes::bf16;
  if (!now_.directed) {
    args.gradient.factor = now_.factor;
    args.gradient.live = step_scalars();
  }
  args.latent_clamp = p_.spec().latent_clamp;
  args.floor = p_.spec().floor;
  const bool codes = codes_ && parts.codes.empty();
  if (codes) args.codes = codes_->sweep();
  swept().for_pieces(0, x.numel(), draws(Purpose::kMoment), [&](int64_t, int64_t n, std::span<float* const> state) {
    args.update = *rule_.row_update(piece(n, args.w, nullptr, state));
    kernels::update_rows(args);
    if (narrow_master()) round_master(0, n, args.w);
  });
  if (codes_ && !codes) codes_->put_rows(0, x);
}

}  // namespace bitgrad::detail
