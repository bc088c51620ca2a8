#include "train/integer.h"

#include "nn/activation_quantizer.h"
#include "nn/layers/dropout.h"
#include "nn/layers/norm.h"

namespace bitgrad::detail {
namespace {

template <typename Holds>
bool all_modules(Module& module, Holds&& holds) {
  if (!holds(module)) return false;
  for (Module* child : module.children())
    if (!all_modules(*child, holds)) return false;
  return true;
}

bool has_scale(Module& module) {
  const auto* const quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  return quantizer == nullptr || quantizer->has_scale();
}

// Whether a forward pass of training changes nothing that codes depend on, and draws nothing.
bool is_fixed(Module& module) {
  const auto* const quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  const auto* const norm = dynamic_cast<const Norm*>(&module);
  return (quantizer == nullptr || (!quantizer->observes() && quantizer->quant().spec.rounding == Rounding::kNearest)) &&
         (norm == nullptr || norm->holds_statistics()) && !draws_in_training(module);
}

}  // namespace

std::shared_ptr<const inference::IntegerNetwork> evaluated_network(TrainState& s) {
  if (s.state.training || s.state.calibrating || s.state.on_forward || !s.plan) return nullptr;
  if (s.converted && s.integer) return s.integer;
  if (!inference::integer_rule(*s.model) || (!s.converted && !all_modules(*s.model, has_scale))) return nullptr;
  s.integer = std::make_shared<const inference::IntegerNetwork>(inference::deployed(*s.model, s.plan->input));
  return s.integer;
}

void follow_network(TrainState& s, const Tensor& x) {
  s.state.exact_codes.clear();
  if (!s.state.training || !s.plan) return;
  const auto rule = inference::integer_rule(*s.model);
  if (!rule || !all_modules(*s.model, has_scale) || !all_modules(*s.model, is_fixed)) return;
  std::map<std::string, inference::Value> quantizers;
  const inference::IntegerNetwork network(
      inference::integer_graph(inference::lowered(*s.model, s.plan->input), *rule, &quantizers));
  std::vector<Tensor> values;
  network.run(x, &values);
  for (const auto& [path, value] : quantizers) s.state.exact_codes[path] = values[static_cast<size_t>(value)];
}

}  // namespace bitgrad::detail
