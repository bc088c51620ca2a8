#include "bitgrad/nn/quantizable.h"

#include <algorithm>
#include <tuple>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/module.h"
#include "nn/activation_quantizer.h"
#include "nn/parameter_spec.h"
#include "nn/slot_product.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

void take_training(ParameterSpec& spec, const LayerQuant& q) {
  spec.grad = *q.grad;
  spec.latent_clamp = q.latent_clamp;
  spec.learned = q.learned;
}

}  // namespace

Quantizable::Quantizable(Module& owner, std::string name, Kind kind, Parameter& weight, const LayerQuant& own)
    : owner_(owner), name_(std::move(name)), kind_(kind), weight_(weight), own_(own), quant_(own) {}
Quantizable::~Quantizable() = default;

// Codes made between two steps are drawn for the model's current step.
int64_t Quantizable::step() const { return owner_.initialized() ? owner_.state().step : 0; }

std::string Quantizable::child_name() const { return name_ == kWeight ? "input" : name_ + "_input"; }
std::string Quantizable::adapter_name() const { return name_ == kWeight ? "adapter" : name_ + "_adapter"; }

// The part of `quant` that applies to this kind of layer, with defaults filled in.
LayerQuant Quantizable::checked(const LayerQuant& quant) const {
  LayerQuant q = quant;
  if (owner_slot_ != nullptr) {
    q.weight = weight_.spec().quant;
    q.master = weight_.spec().master;
  }
  if (!q.weight) q.master = MasterKind::kFp32;
  q.master = q.master ? q.master : own_.master;
  q.grad = q.grad ? q.grad : own_.grad;
  q.latent_clamp = q.latent_clamp ? q.latent_clamp : own_.latent_clamp;
  // Signs that are flipped (Bop) have no latent values to clamp.
  if (q.weight && *q.master == MasterKind::kNone && q.weight->dtype.kind() == DTypeKind::kSign) q.latent_clamp.reset();
  if (kind_ != Kind::kEmbedding) return q;
  q.input.reset();
  q.observer.reset();
  q.compute = Compute::kPacked;
  return q;
}

std::shared_ptr<ActivationQuantizer> Quantizable::make_input(const LayerQuant& q) const {
  require(q.input || !q.observer, "Quantizable", "an observer needs an input quantizer: got none");
  if (!q.input) return nullptr;
  auto input = std::make_shared<ActivationQuantizer>(ActivationQuant{*q.input, q.observer, q.input_grad, q.learned});
  if (features_ > 0)
    input->describe(features_);
  else if (kind_ == Kind::kLinear && weight_.described())
    input->describe(weight_.shape().cols());
  return input;
}

void Quantizable::check(const LayerQuant& quant, const QuantMode& mode) const {
  const LayerQuant q = checked(quant);
  require(!converted_, "Quantizable", "the layer is converted: it has no master to requantize. Prepare before convert");
  check_weight(q);
  require(q.compute != Compute::kIntegerOut || mode.quantization != QuantSwitch::kOff, "Quantizable",
          "compute: integer_out returns int32 and has no float equivalent: it cannot be switched off. Use compute: "
          "packed.");
  const bool taken_name = std::any_of(owner_.children_.begin(), owner_.children_.end(),
                                      [&](const auto& child) { return child.name == child_name(); });
  require(!q.input || input_ || !taken_name, "Quantizable", "the module has a child '", child_name(),
          "', a name that the input's quantizer needs. Rename it.");
  make_input(q);
}

void Quantizable::check_weight(const LayerQuant& q) const {
  if (owner_slot_ != nullptr) return;
  ParameterSpec spec = weight_.spec();
  spec.quant = q.weight;
  spec.master = *q.master;
  take_training(spec, q);
  detail::check_parameter_spec(spec);
  require(q.compute != Compute::kIntegerOut || q.weight, "Quantizable",
          "compute: integer_out needs quantized weights: got fp32. Use compute: packed.");
  require(q.compute != Compute::kIntegerOut || !adapter_, "Quantizable",
          "compute: integer_out returns int32 and does not support adapters. Use compute: packed.");
  if (q.compute == Compute::kInteger) check_integer(q);
}

// What has no integer form whatever the values are; the rest is known once there is a graph (nn/integer_graph.h).
void Quantizable::check_integer(const LayerQuant& q) const {
  constexpr std::string_view kHint = ". Use recipe int8 or w4a8_int, or compute: packed.";
  require(q.weight.has_value(), "Quantizable", "compute: integer needs quantized weights: got fp32", kHint);
  const Granularity& g = q.weight->granularity;
  require(g.kind == Granularity::kTensor || g.per_row(), "Quantizable",
          "compute: integer needs weights with scales per tensor or channel(0): got ", g, kHint);
  require(q.input && q.input->dtype == dtypes::int8 && q.input->granularity.kind == Granularity::kTensor, "Quantizable",
          "compute: integer needs int8 inputs with one scale per tensor: got ",
          q.input ? concat(q.input->dtype, ' ', q.input->granularity) : "fp32", kHint);
  const Quantizer& scheme = find_quantizer(q.input->scheme);
  require(q.observer || !scheme.from_range(), "Quantizable",
          "compute: integer needs the scale of its input before a batch is seen: got scheme ", q.input->scheme,
          " without an observer. Give it one, such as moving_average.");
  require(!adapter_, "Quantizable", "compute: integer does not support adapters. Use compute: packed.");
}

void Quantizable::set(const LayerQuant& quant, const QuantMode& mode) {
  check(quant, mode);
  const LayerQuant before = quant_;
  quant_ = checked(quant);
  mode_ = mode;
  hold_weight();
  const auto input_of = [](const LayerQuant& q) { return std::tie(q.input, q.observer, q.input_grad, q.learned); };
  if (input_of(quant_) != input_of(before)) {
    input_ = make_input(quant_);
    owner_.replace_child(child_name(), input_);
  }
  if (input_) input_->set_quant_mode(mode_);
}

void Quantizable::hold_weight() {
  if (owner_slot_ != nullptr) return;
  const bool low = on() && quant_.weight;
  const std::optional<QuantSpec> wanted = low ? quant_.weight : std::nullopt;
  const auto edit = [&](ParameterSpec& spec) {
    if (!detail::same_quant(wanted, spec.quant)) spec.quant = wanted;
    spec.master = low ? *quant_.master : MasterKind::kFp32;
    take_training(spec, quant_);
    spec.scales_frozen = mode_.quantization == QuantSwitch::kFrozen;
  };
  weight_.change(edit, step());
}

void Quantizable::check_mode(const QuantMode& mode) const {
  if (mode == mode_) return;
  require(!converted_, "Quantizable", "the layer is converted: its quantization is fixed, got quantization ",
          enum_name(mode.quantization));
  require(quant_.compute != Compute::kIntegerOut || mode.quantization != QuantSwitch::kOff, "Quantizable",
          "compute: integer_out returns int32 and has no float equivalent: it cannot be switched off. Use compute: "
          "packed.");
}

void Quantizable::set_mode(const QuantMode& mode) {
  check_mode(mode);
  if (mode == mode_) return;
  mode_ = mode;
  hold_weight();
  if (input_) input_->set_quant_mode(mode);
}

void Quantizable::adapt(const AdapterSpec& spec) {
  require(kind_ == Kind::kLinear && owner_slot_ == nullptr, "adapters",
          "only linear layers with their own weights "
          "support adapters");
  require(!adapter_, "adapters", "the layer has an adapter already");
  require(!owner_.frozen(), "adapters",
          "the layer is frozen, and an adapter would change it. Take it out of train.frozen or of adapters.layers");
  require(!owner_.initialized(), "adapters", "the model is initialized: add adapters before, and load its values then");
  require(quant_.compute != Compute::kIntegerOut, "adapters",
          "compute: integer_out returns int32 and does not support adapters. Use compute: packed.");
  require(quant_.compute != Compute::kInteger, "adapters",
          "compute: integer has no sums of floats, and does not support adapters. Use compute: packed.");
  adapter_ = std::make_shared<LowRankAdapter>(spec, weight_);
  owner_.add_child(adapter_name(), adapter_);
  weight_.change([](ParameterSpec& spec) { spec.frozen = true; });
}

void Quantizable::drop_adapter() {
  if (!adapter_) return;
  owner_.replace_child(adapter_name(), nullptr);
  adapter_.reset();
}

void Quantizable::convert() {
  if (converted_) return;
  if (!on()) {
    quant_ = checked(LayerQuant{});
    input_.reset();
    owner_.replace_child(child_name(), nullptr);
  }
  mode_ = {};
  if (quant_.compute == Compute::kSimulated) quant_.compute = Compute::kPacked;
  if (owner_slot_ == nullptr) weight_.change([](ParameterSpec& spec) { spec.converted = true; });
  converted_ = true;
}

Var Quantizable::input(const Var& x) {
  if (!input_ || x.dtype().is_code()) {
    ensure(!input_ || x.dtype() == input_->quant().spec.dtype, "input", "got codes of ", x.dtype(),
           ", expected values, or codes as the quantizer of the input makes them");
    return x;
  }
  return (*input_)(x);
}

Var Quantizable::linear(const Var& x, const Var& bias, const ProductModes& modes) {
  return adapted(product(input(x), bias, nullptr, modes), x);
}

// The adapter reads the layer's input, not the codes of its input quantizer.
Var Quantizable::adapted(const Var& y, const Var& x) {
  if (!adapter_) return y;
  const auto sum = [](const std::vector<Var>& parts) { return add(parts[0], parts[1]); };
  return detail::in_values({y, (*adapter_)(x)}, y_, true, sum);
}

Var Quantizable::conv2d(const Var& x, const Var& bias, const Conv2dOptions& options, const ProductModes& modes) {
  return product(input(x), bias, &options, modes);
}

namespace {

Var packed_product(const Var& x, const Var& w, const Var& bias, const Conv2dOptions* options, const ProductModes& how) {
  return options ? bitgrad::conv2d(x, w, bias, *options, how) : bitgrad::linear(x, w, bias, how);
}
Var simulated_product(const Var& x, const Var& w, const Var& bias, const Conv2dOptions* options,
                      const ProductModes& how) {
  return options ? conv2d_simulated(x, w, bias, *options, how.y) : linear_simulated(x, w, bias, how.y, how.row_alone);
}
Var integer_product(const Var& x, const Var& w, const Var& bias, const Conv2dOptions* options) {
  return options ? integer_conv2d(x, w, bias, *options) : integer_linear(x, w, bias);
}

}  // namespace

// `in` is the output of the input quantizer.
Var Quantizable::product(const Var& in, const Var& bias, const Conv2dOptions* options, const ProductModes& modes) {
  ProductModes how = on() ? modes : ProductModes();
  how.y = in.dtype() == dtypes::fp64 ? dtypes::fp32 : y_;
  how.row_alone = causal_ && owner_.initialized() && !owner_.state().training;
  if (on() && quant_.compute == Compute::kSimulated)
    return simulated_product(in, weight_.read(ReadAs::kValues), bias, options, how);
  if (on() && quant_.compute == Compute::kIntegerOut) return integer_product(in, weight_.read(), bias, options);
  return packed_product(in, weight_.read(), bias, options, how);
}

Form Quantizable::plan_linear(const Form& in, PlanRequests& requests, bool bias, const ProductModes& modes) {
  return plan_slot(in, requests, nullptr, bias, modes);
}

Form Quantizable::plan_conv2d(const Form& in, PlanRequests& requests, const Conv2dOptions& options, bool bias,
                              const ProductModes& modes) {
  return plan_slot(in, requests, &options, bias, modes);
}

Form Quantizable::plan_slot(const Form& in, PlanRequests& requests, const Conv2dOptions* options, bool bias,
                            const ProductModes& modes) {
  y_ = in.float_output();
  causal_ = in.causal;
  features_ = in.features();
  const Form x = input_ ? input_->plan(in, requests) : in;
  static const ProductModes kPlain;
  // A layer that was converted while off counts as on, in fp32.
  const bool plain = !on() || (converted_ && !quant_.weight);
  PlanRequests of_codes;
  const bool packed = !on() || quant_.compute == Compute::kInteger;
  const detail::SlotProduct form{weight_, packed ? Compute::kPacked : quant_.compute, plain ? kPlain : modes, bias,
                                 options};
  Form y = detail::plan_slot_product(form, x, input_ ? of_codes : requests);
  if (input_) requests.merge(input_->serve(of_codes));
  if (!adapter_) return y;
  Form sum = y;
  sum.grad = adapter_->planned(in, requests).grad || y.grad;
  return sum;
}

}  // namespace bitgrad
