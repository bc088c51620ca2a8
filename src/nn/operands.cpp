// Quantizers of what layers without weights read, for compute: integer.
#include <algorithm>

#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "nn/activation_quantizer.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

// nullptr if the operand has no quantizer.
ActivationQuantizer* quantizer_of(const Module& module, const std::string& name) {
  return dynamic_cast<ActivationQuantizer*>(const_cast<Module&>(module).find(name));
}

void quantize_all(Module& module, const std::optional<ActivationQuant>& quant, const QuantMode& mode) {
  module.quantize_operands(quant, mode);
  for (Module* child : module.children()) quantize_all(*child, quant, mode);
}

}  // namespace

void Module::quantize_operands(const std::optional<ActivationQuant>& quant, const QuantMode& mode) {
  operands_ = quant && !operand_names().empty();
  for (const std::string& name : operand_names()) {
    ActivationQuantizer* own = quantizer_of(*this, name);
    if (!quant) {
      if (own != nullptr) replace_child(name, nullptr);
      continue;
    }
    if (own == nullptr || own->quant() != *quant) {
      require(own != nullptr || find(name) == nullptr, "prepare", "the layer '", path_, "' has a child '", name,
              "', a name that compute: integer needs. Rename it");
      const auto made = std::make_shared<ActivationQuantizer>(*quant);
      replace_child(name, made);
      own = made.get();
    }
    own->set_quant_mode(mode);
  }
}

Var Module::operand(const std::string& name, const Var& x) const {
  ActivationQuantizer* const quantizer = operands_ ? quantizer_of(*this, name) : nullptr;
  if (quantizer == nullptr) return x;
  const Var codes = in_layer(name, [&] { return (*quantizer)(x); });
  return codes.dtype().is_code() ? dequantize(codes, x.dtype()) : codes;
}

Form Module::plan_operand(const std::string& name, const Form& in) const {
  ActivationQuantizer* const quantizer = operands_ ? quantizer_of(*this, name) : nullptr;
  if (quantizer == nullptr) return in;
  PlanRequests unserved;
  Form out = in;
  out.grad = in_layer(name, [&] { return quantizer->planned(in, unserved); }).grad;
  return out;
}

inference::Value Module::lower_operand(const std::string& name, inference::Graph& graph, inference::Value x) const {
  ActivationQuantizer* const quantizer = operands_ ? quantizer_of(*this, name) : nullptr;
  if (quantizer == nullptr || quantizer->quant_mode().quantization == QuantSwitch::kOff) return x;
  const Form values = graph[x].form;
  x = in_layer(name, [&] { return quantizer->lower(graph, x); });
  return detail::add_node(graph, quantizer->path(), inference::Dequantize{}, x, values);
}

void operands_follow_slots(Module& model) {
  std::optional<ActivationQuant> quant;
  QuantMode mode;
  for (const Quantizable* slot : model.quantizables()) {
    const LayerQuant& q = slot->quant();
    if (q.compute != Compute::kInteger || !q.input) continue;
    quant = ActivationQuant{*q.input, q.observer, q.input_grad, q.learned};
    mode = slot->mode();
    break;
  }
  if (auto* const root = dynamic_cast<Sequential*>(&model)) root->set_whole_model();
  quantize_all(model, quant, mode);
}

}  // namespace bitgrad
