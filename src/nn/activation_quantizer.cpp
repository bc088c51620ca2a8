// Activation quantizer: converts values to codes; backward is the straight-through rule of the scheme. Scales are
// computed per batch, taken from an observed range, or learned. int32 sums with a scale are requantized.
//
// Learned parts are parameters "step", "offset", "clip" of shape [1] or [features]. The first training batch
// initializes them. Until then the step is 0, in checkpoints too, and evaluation uses initial values computed from its
// own batch. A clip has its initial value from the start. docs/numerics.md sections 3 and 9.
#include "nn/activation_quantizer.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "kernels/device_kernel.h"
#include "kernels/flag.h"
#include "kernels/map/scales.h"
#include "kernels/reduce.h"
#include "nn/layers/norm.h"
#include "nn/map/first_batch.h"
#include "nn/step_signal.h"
#include "nn/values.h"
#include "ops/common.h"
#include "quant/blocks.h"

namespace bitgrad {
namespace {

// Value ranges of int32 sums with a scale, from which requantization computes its scale.
struct IntegerRange {
  Tensor low, high;  // fp32 values, one per block; 0 for a block without elements
};

Tensor numbers_of(int64_t count) { return Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace); }

// x [n,f] is int32 without a scale, or with one that is not negative. One block for all of x, or one per row.
IntegerRange integer_range(const Tensor& x, bool per_row) {
  require(x.dtype() == dtypes::int32 && x.contiguous(), "range", "expected dense int32, got ", x);
  const int64_t rows = x.rows(), cols = x.cols();
  if (!per_row && x.numel() == 0)
    return {Tensor::zeros({1}, dtypes::fp32, MemoryKind::kWorkspace),
            Tensor::zeros({1}, dtypes::fp32, MemoryKind::kWorkspace)};
  IntegerRange of_rows{numbers_of(rows), numbers_of(rows)};
  run_map(
      maps::IntegerRowRanges{{cols, x.scale_map()}, x.as<int32_t>(), of_rows.low.as<float>(), of_rows.high.as<float>()},
      rows, rows_per_task(cols));
  if (per_row) return of_rows;
  IntegerRange out{numbers_of(1), numbers_of(1)};
  kernels::ReduceArgs args;
  args.rows = 1;
  args.cols = args.ldx = rows;
  args.rule = kernels::ReduceRule::kMin;
  args.x = of_rows.low.as<float>();
  args.out = out.low.as<float>();
  kernels::reduce(args);
  args.rule = kernels::ReduceRule::kMax;
  args.x = of_rows.high.as<float>();
  args.out = out.high.as<float>();
  kernels::reduce(args);
  return out;
}

constexpr std::string_view kQuantizeLayer = "quantize";
constexpr std::string_view kDequantize = " Put dequantize before it.";

// Two values with the range of x, as input for an observer.
Tensor range_as_batch(const Tensor& x) {
  const IntegerRange range = integer_range(x, /*per_row=*/false);
  Tensor ends = Tensor::empty({1, 2}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::TwoEnds{range.low.as<float>(), range.high.as<float>(), ends.as<float>()}, 1);
  return ends;
}

}  // namespace

ActivationQuantizer::ActivationQuantizer(const ActivationQuant& quant)
    : quant_(quant), quantizer_(find_quantizer(quant.spec.scheme)) {
  quantizer_.check(quant_.spec, /*weight=*/false);
  require(quant_.grad == dtypes::fp32 || quant_.grad == dtypes::bf16, kQuantizeLayer,
          "gradients can be fp32 or bf16, got ", quant_.grad);
  add_learned();
  if (!quant_.observer) return;
  require(learned_.empty(), kQuantizeLayer, "scheme ", quant_.spec.scheme, " learns its scale: got also observer ",
          quant_.observer->name, ". Leave the observer out.");
  make_observer(*quant_.observer, quant_.spec, 1);  // throws if the observer does not fit the spec
}

bool ActivationQuantizer::per_feature() const {
  const Granularity& g = quant_.spec.granularity;
  return g.kind == Granularity::kChannel && g.axis != 0;
}

void ActivationQuantizer::describe(int64_t features) {
  features_ = features;
  for (Parameter* p : learned_) p->describe({per_feature() ? features : 1});
}

void ActivationQuantizer::allocate() {
  if (!quant_.observer || observer_) return;
  observer_ = make_observer(*quant_.observer, quant_.spec, features_);
  for (const Observer::State& s : observer_->state()) add_buffer("observer." + std::string(s.name), s.tensor);
}

void ActivationQuantizer::set_quant_mode(const QuantMode& mode) {
  mode_ = mode;
  for (Parameter* p : learned_)
    p->change(
        [&](ParameterSpec& s) { s.frozen = frozen() || mode.quantization == QuantSwitch::kFrozen || s.converted; });
}

Var ActivationQuantizer::forward(const Var& x) {
  QuantSpec spec = quant_.spec;
  if (!state().training) spec.rounding = Rounding::kNearest;  // evaluation must not depend on draws or the batch size
  require(step_scalars() == nullptr || ste_rule(spec) != SteRule::kTanh, "quantize", "the straight-through rule of '",
          path(), "' changes from step to step");
  if (ste_rule(spec) == SteRule::kTanh) spec.ste_t = annealed_t(spec, state().progress);
  const RandomStream draws = live_by_microbatch(
      {state().seed, Purpose::kActivation, site_id(path()), static_cast<uint32_t>(state().microbatch)});
  const bool first = !has_first_values();  // may read the flags of a device, which ends the words taken before
  QuantizeOpOptions options;
  options.sr = &draws;
  options.flag = mutable_state().flags.word(path());
  options.transposed = transposed_ && state().training && Tape::current() != nullptr;
  observe(x.value(), options.flag);
  if (mode_.quantization == QuantSwitch::kOff) return detail::pass_through(x, y_);
  Var input = x;
  const DType grad = x.dtype() == dtypes::bf16 ? dtypes::bf16 : quant_.grad;  // a bf16 edge has bf16 gradients
  if (input.tracked() && grad != input.grad_dtype()) input.want_grad(grad);
  if (!learned_.empty())
    return exact(quantize_learned(input, spec, learned_now(first, spec, x.value(), options.flag), options));
  options.params = observed(spec);
  if (x.dtype() != dtypes::int32) return exact(quantize(input, spec, options));
  return requantize(input, spec.dtype, options.params ? options.params : range_params(spec, x.value()));
}

namespace {

// Other codes for the same values; the gradient passes.
struct ExactCodes {
  static constexpr std::string_view kName = "exact_codes";
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor>, const Tensor& codes) { return codes; }
  static void backward(Saved&, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(gy[0].dtype() == g[0].dtype() ? gy[0] : wide(gy[0]));
  }
};

}  // namespace

Var ActivationQuantizer::exact(Var codes) const {
  if (!state().training) return codes;
  const auto found = state().exact_codes.find(path());
  return found == state().exact_codes.end() ? codes : apply<ExactCodes>({codes}, found->second);
}

// Whether the codes are just the signs of the input, with nothing learned or observed.
bool ActivationQuantizer::accepts_signs() const {
  return mode_.quantization != QuantSwitch::kOff && learned_.empty() && !observer_ &&
         quant_.spec.dtype == dtypes::bint1 && quantizer_.constant_params(quant_.spec) &&
         quantizer_.code_range(quant_.spec).rule == CodeRule::kSign;
}
// Whether a preceding norm can also apply the straight-through rule in a fused backward.
bool ActivationQuantizer::trains_signs() const {
  const SteRule rule = ste_rule(quant_.spec);
  return (rule == SteRule::kClip || rule == SteRule::kIdentity) && !quantizer_.own_backward(quant_.spec) &&
         !quant_.spec.alpha && quant_.grad == dtypes::fp32;
}

Var ActivationQuantizer::signs_of(Norm& norm, const Var& x, const PoolOptions* pool) {
  if (!accepts_signs() || !norm.returns_signs(x.value())) return {};
  if (state().training && !(trains_signs() && norm.trains_in_one_pass(x))) return {};
  if (pool != nullptr && (!state().training || x.shape().rank() != 4)) return {};
  const auto params = std::make_shared<const QuantParams>(quantizer_.fit(quant_.spec, x.value()));
  uint32_t* const flags = mutable_state().flags.word(path());
  if (!state().training) return norm.signs(x.value(), params, flags);
  return norm.training_signs(x, params, flags, ste_rule(quant_.spec) == SteRule::kClip, pool);
}

Form ActivationQuantizer::plan(const Form& in, PlanRequests&) {
  const bool integers = in.dtype == dtypes::int32;
  require(integers || detail::is_values(in.dtype), kQuantizeLayer, "needs fp32 input, got ", in.dtype,
          ". Put dequantize before it, or, after a quantize layer, use a recipe of weights only (such as int8wo); "
          "int32 sums of a linear layer (compute: integer_out) are accepted too.");
  describe(in.features());
  if (in.training && initialized() && state().observed_ranges && observes()) {
    const std::string& name = quant_.observer->name;
    require(
        name == "min_max" || name == "moving_average", kQuantizeLayer, "observer ", name,
        " reads all values, so it cannot follow a microbatch at the end of its step (quant.observer_update: window, "
        "and several ranks). Use min_max or moving_average, or a phase with observers: false from step 0 on");
  }
  if (in.training && in.samples > 0) transposed_ = false;  // readers request it anew
  if (mode_.quantization == QuantSwitch::kOff) {
    Form out = in;
    out.dtype = y_ = detail::passed_dtype(in);
    return out;
  }
  const std::optional<ScaleForm> scales = scale_form(quant_.spec);
  if (integers) check_integers(scales && scales->offset);
  Form out = in;
  out.dtype = quant_.spec.dtype;
  out.scales = scales;
  integers_ = integers;
  out.grad = in.grad || std::any_of(learned_.begin(), learned_.end(), [](Parameter* p) { return p->trains(); });
  return out;
}

// Whether a scale is computed from several rows of the batch, so that the codes of a sample depend on the others.
bool ActivationQuantizer::scales_of_batch() const {
  const Granularity& g = quant_.spec.granularity;
  const bool of_row = g.per_row() || (g.kind == Granularity::kGroup && g.axis != 0);
  const bool found = learned_.empty() && !quant_.observer && !quantizer_.constant_params(quant_.spec);
  return mode_.quantization != QuantSwitch::kOff && !of_row && found;
}

// In a causal model, scales computed from the batch must each belong to one row or a part of it.
void ActivationQuantizer::check_rows() const {
  require(!scales_of_batch(), kQuantizeLayer,
          "the model is causal, and these scales are found from the whole batch, later positions too: got ",
          quant_.spec.dtype, ", scheme ", quant_.spec.scheme, ", granularity ", quant_.spec.granularity,
          ". Use granularity: token, an observer, or a scheme that learns its step, such as lsq");
}

PlanRequests ActivationQuantizer::serve(const PlanRequests& requests) {
  if (mode_.quantization == QuantSwitch::kOff) return requests;
  transposed_ = transposed_ || (!integers_ && requests.wants(layouts::transposed));
  return requests.parts();
}

void ActivationQuantizer::add_learned() {
  const std::vector<LearnedPart> parts = quantizer_.learned(quant_.spec);
  if (parts.empty()) return;
  const Granularity& g = quant_.spec.granularity;
  require(per_feature() || g.kind == Granularity::kTensor, kQuantizeLayer, "scheme ", quant_.spec.scheme,
          " learns values per tensor or per channel(1): got ", g, '.');
  for (const LearnedPart& part : parts) {
    const bool known = part.name == "clip";
    ParameterSpec p;
    p.moments = MomentKind::kFp32;
    p.init = {"constant", known ? static_cast<double>(quant_.spec.first_clip) : 0.0, 0};
    p.floor = part.floor;
    p.lr_factor = quant_.learned.lr_factor;
    p.weight_decay = quant_.learned.weight_decay;
    learned_.push_back(&add_parameter(std::string(part.name), p));
    if (!known && marker_ == nullptr) marker_ = learned_.back();
  }
}

// Whether the learned parts have their initial values, i.e. the first element of the step is not 0. A device reads back
// at first, and never again once the flags of a batch have said that it stored them: a step never returns to 0.
bool ActivationQuantizer::has_first_values() const {
  if (marker_ == nullptr) return true;
  if (current_device().is_cpu()) return marker_->value().as<float>()[0] != 0.0f;
  *seen_set_ = *seen_set_ || read_number(marker_->value().as<float>()) != 0.0f;
  return *seen_set_;
}

// Whether batches may store initial values and update observed ranges now.
bool ActivationQuantizer::stores() const {
  return (state().training || state().calibrating) && !state().recomputing &&
         mode_.quantization != QuantSwitch::kFrozen;
}

std::vector<Var> ActivationQuantizer::learned_now(bool first, const QuantSpec& spec, const Tensor& x, uint32_t* flag) {
  if (first && !set_first(spec, x, flag)) return first_;
  if (state().training && state().fits_steps && stores()) refit(spec, x);
  std::vector<Var> now;
  for (Parameter* p : learned_) now.push_back(p->read());
  return now;
}

// Computes initial values into first_ and stores them if this batch may. Returns whether it did.
bool ActivationQuantizer::set_first(const QuantSpec& spec, const Tensor& x, uint32_t* flag) {
  std::vector<Tensor> values;
  bool fits = x.numel() > 0;
  const FlagWord bad;
  const detail::FlagScope scope(bad.word());
  try {
    const Tensor floats = x.dtype() == dtypes::int32 ? values_of(kQuantizeLayer, x, MemoryKind::kWorkspace) : x;
    values = quantizer_.first_learned(spec, quantizer_.reads_bf16() ? floats : widened(floats));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNonFinite || !current_device().is_cpu()) throw;
    *flag |= kFlagNonFinite;  // this step is dropped, so any legal values do
    fits = false;
    for (Parameter* p : learned_) values.push_back(Tensor::full(p->shape(), dtypes::fp32, 1.0));
  }
  first_.clear();
  for (size_t i = 0; i < learned_.size(); ++i) {
    if (const auto floor = learned_[i]->spec().floor)
      run_map(maps::NumbersAtLeast{values[i].as<float>(), *floor, values[i].as<float>()}, values[i].numel());
    if (fits && stores())
      run_map(maps::StoreFirst{values[i].as<float>(), bad.word(), flag, learned_[i]->value().as<float>()},
              values[i].numel());
    first_.push_back(values[i]);
  }
  if (fits && stores()) bad.read([seen = seen_set_](uint32_t word) { *seen = word == 0; });
  return fits && stores();
}

// Steps without signal get the values of a fit to this batch. docs/numerics.md section 3.
void ActivationQuantizer::refit(const QuantSpec& spec, const Tensor& x) {
  const auto floor = learned_[0]->spec().floor;
  if (!floor || learned_[0]->spec().frozen) return;
  std::vector<Tensor> now;
  for (Parameter* p : learned_) now.push_back(p->value());
  detail::refit_steps(spec, now, *floor, x, state().step, {path(), "input", told_refit_});
}

bool ActivationQuantizer::fits_steps() const {
  if (learned_.empty() || mode_.quantization != QuantSwitch::kOn) return false;
  if (!has_first_values()) return true;
  const auto floor = learned_[0]->spec().floor;
  if (!floor || learned_[0]->spec().frozen) return false;
  const std::vector<float> steps = learned_[0]->value().to_vector();
  return state().step % detail::kSignalEvery == 0 ||
         std::any_of(steps.begin(), steps.end(), [&](float s) { return s <= *floor; });
}

void ActivationQuantizer::observe(const Tensor& x, uint32_t* flag) {
  if (!observer_ || x.numel() == 0 || !stores()) return;
  const bool held = !mode_.observers || (frozen() && observer_->ready());
  if (held && !state().calibrating) return;
  const detail::FlagScope scope(flag);
  try {
    const Tensor values = x.dtype() == dtypes::int32 ? range_as_batch(x) : x;
    if (state().observed_ranges && !state().calibrating)
      hold_range(values);
    else
      observer_->observe(values, state().calibrating);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNonFinite || !current_device().is_cpu()) throw;
    *flag |= kFlagNonFinite;
  }
}

// An observer of one batch knows its range.
void ActivationQuantizer::hold_range(const Tensor& x) {
  const auto of_batch = make_observer({.name = "min_max"}, quant_.spec, features_);
  of_batch->observe(x);
  const Tensor low = of_batch->state()[0].tensor, high = of_batch->state()[1].tensor;
  const Tensor ends = Tensor::empty({2, low.numel()}, dtypes::fp32, MemoryKind::kQuantState);
  ends.row_slice(0, 1).copy_from(low.reshape({1, low.numel()}));
  ends.row_slice(1, 2).copy_from(high.reshape({1, high.numel()}));
  mutable_state().observed_ranges->push_back({path(), ends});
}

// Scales of the observed range; nullptr if there is none yet.
std::shared_ptr<const QuantParams> ActivationQuantizer::observed(const QuantSpec& spec) const {
  if (!observer_ || !observer_->ready()) return nullptr;
  return std::make_shared<const QuantParams>(observer_->params(spec));
}

std::shared_ptr<const QuantParams> ActivationQuantizer::range_params(const QuantSpec& spec, const Tensor& x) const {
  const IntegerRange range = integer_range(x, spec.granularity.kind == Granularity::kToken);
  return std::make_shared<const QuantParams>(quantizer_.fit_range(spec, range.low, range.high));
}

// Rejects what requantize does not support: docs/numerics.md section 4.
void ActivationQuantizer::check_integers(bool offset) const {
  const Granularity& g = quant_.spec.granularity;
  require(quantizer_.from_range() || !learned_.empty(), kQuantizeLayer,
          "of int32 needs a scheme whose scale is computed from a ",
          "range (symmetric, absmax, affine) or is learned: got ", quant_.spec.scheme, '.', kDequantize);
  require(!offset, kQuantizeLayer, "of int32 has no real offset: got scheme ", quant_.spec.scheme, '.', kDequantize);
  require(g.kind == Granularity::kTensor || (g.kind == Granularity::kToken && learned_.empty() && !quant_.observer),
          kQuantizeLayer, "of int32 has scales per tensor, or per token computed from each batch: got ", g, '.',
          kDequantize);
  require(quant_.spec.rounding == Rounding::kNearest && !quant_.spec.reduce_range, kQuantizeLayer,
          "of int32 rounds to nearest, to all codes", " of ", quant_.spec.dtype, ": got ",
          quant_.spec.reduce_range ? "reduce_range" : "stochastic", '.', kDequantize);
  require(!quant_.spec.div, kQuantizeLayer, "of int32 multiplies by s_in / s_out and divides by no scale: got div.",
          kDequantize);
  require(!learned_.empty() || ste_rule(quant_.spec) == SteRule::kClip, kQuantizeLayer,
          "of int32 has the straight-through rule clip", ": got another.", kDequantize);
  const std::string observer = quant_.observer ? quant_.observer->name : std::string();
  require(observer.empty() || observer == "min_max" || observer == "moving_average", kQuantizeLayer,
          "of int32 is observed by min_max or moving_average: got ", observer, '.', kDequantize);
}

}  // namespace bitgrad
