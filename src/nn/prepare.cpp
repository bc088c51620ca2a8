// Chooses the precision of each layer, and switches the mode of a whole model. docs/numerics.md section 9.
#include "bitgrad/nn/prepare.h"

#include <algorithm>
#include <set>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/nn/adapter.h"
#include "kernels/flag.h"
#include "nn/activation_quantizer.h"
#include "nn/glob.h"

namespace bitgrad {
namespace {

std::string names_of(const std::vector<LayerChoice>& choices) {
  return choices.empty() ? "none" : joined(choices, ", ", &LayerChoice::layer);
}

void choose(LayerChoice& choice, const LayerQuant& quant, const std::string& rule) {
  choice.quant = quant;
  choice.rule = rule;
}

// Errors of `check` get the layer's name and what was requested of it.
template <typename Check>
void check_layer(std::string_view where, const std::string& layer, const std::string& what, Check check) {
  try {
    check();
  } catch (const Error& e) {
    throw Error(concat('[', where, "] layer '", layer, "'", what, ": ", e.what()), e.code());
  }
}

std::string wanted(const QuantMode& mode) { return concat(", quantization ", enum_name(mode.quantization)); }
std::string wanted(const LayerChoice& c) { return concat(" by rule '", c.rule, "' (recipe ", c.quant->recipe, ')'); }

// A window of a convolution covers several tokens (pixels), so a recipe's scale per token becomes one per tensor, of an
// observed range: computed from the batch, it would make a sample's result depend on the others. What a rule sets
// explicitly is kept.
void fit_to_windows(const Quantizable& slot, LayerQuant& quant) {
  const bool of_recipe = slot.kind() == Quantizable::Kind::kConv && quant.input && quant.recipe != "custom";
  if (!of_recipe || quant.input->granularity.kind != Granularity::kToken) return;
  quant.input->granularity = Granularity::tensor();
  if (!quant.observer && find_quantizer(quant.input->scheme).from_range()) quant.observer = ObserverSpec{};
}

void walk(Module& module, const std::function<void(Module&)>& visit) {
  visit(module);
  for (Module* child : module.children()) walk(*child, visit);
}

}  // namespace

namespace {

std::string rule_name(const LayerChoice& c) {
  return c.rule == "first" || c.rule == "last" ? concat("quant.", c.rule) : concat("rule '", c.rule, '\'');
}

// What a shared weight will be is said by the choice of the layer that owns it.
const LayerQuant& choice_of(const Quantizable* owner, const std::vector<LayerChoice>& choices) {
  for (const LayerChoice& c : choices)
    if (c.slot == owner && c.quant) return *c.quant;
  return owner->quant();
}

// A key of how a weight trains that differs from what its owner says; "": none. What is not set is the owner's.
std::string other_training(const LayerQuant& own, const LayerQuant& shared, const ParameterSpec& layer) {
  if (!own.weight) return "";
  if (own.master && *own.master != shared.master.value_or(layer.master)) return "master";
  if (own.grad && *own.grad != shared.grad.value_or(layer.grad)) return "grad";
  if (own.latent_clamp && own.latent_clamp != (shared.latent_clamp ? shared.latent_clamp : layer.latent_clamp))
    return "latent_clamp";
  return "";
}

// A layer that shares the weight of another takes no weight of its own from first, last or a rule. A rule of
// activations alone chooses none.
void check_shared(const LayerChoice& c, const std::vector<LayerChoice>& choices) {
  const Quantizable* const owner = c.slot->weight_owner();
  if (owner == nullptr || c.rule == "all" || (!c.quant->weight && c.quant->input)) return;
  const auto text = [](const std::optional<QuantSpec>& q) {
    return q ? concat(q->dtype, ' ', q->scheme, ' ', q->granularity) : std::string("fp32");
  };
  const LayerQuant& chosen = choice_of(owner, choices);
  const std::optional<QuantSpec>& shared = chosen.weight;
  std::string name;
  for (const LayerChoice& other : choices)
    if (other.slot == owner) name = other.layer;
  if (shared == c.quant->weight) {
    const std::string key = other_training(*c.quant, chosen, owner->weight().spec());
    return require(key.empty(), "prepare", rule_name(c), " falls on '", c.layer,
                   "', which has no weight of its own, but that of '", name, "': its ", key,
                   " differs from the one there. Name '", name, "' in a rule to change both");
  }
  fail("prepare", rule_name(c), " falls on '", c.layer, "', which has no weight of its own, but that of '", name,
       "': got ", text(c.quant->weight), " weights, expected ", text(shared), " as there. Name '", name,
       "' in a rule to change both, or choose activations alone for '", c.layer, '\'');
}

// Ids cannot be quantized: what first, last or a rule says of an input has no effect if all its layers read ids.
void check_ids(const LayerChoice& c, const std::vector<LayerChoice>& choices) {
  const bool asks = c.quant->input || c.quant->compute != Compute::kPacked;
  if (c.rule == "all" || !asks || c.slot->kind() != Quantizable::Kind::kEmbedding) return;
  for (const LayerChoice& other : choices)
    if (other.rule == c.rule && other.slot->kind() != Quantizable::Kind::kEmbedding) return;
  require(c.quant->input.has_value(), "prepare", rule_name(c), " falls on '", c.layer,
          "', which reads rows and multiplies nothing: got compute: ", enum_name(c.quant->compute),
          ", expected packed");
  fail("prepare", rule_name(c), " falls on '", c.layer, "', whose input are ids: got ", c.quant->input->dtype,
       " activations (recipe ", c.quant->recipe, "), expected weights alone, such as int8wo");
}

}  // namespace

std::vector<LayerChoice> choose_layers(Module& model, const PrepareSpec& spec, const std::string& root) {
  std::vector<LayerChoice> choices;
  std::set<const Quantizable*> seen;
  for (const Module::QuantizableAt& at : model.quantizables_at(root)) {
    require(seen.insert(at.slot).second, "prepare", "the layer '", at.layer, "' is twice in the model.");
    choices.push_back({at.layer, at.slot, std::nullopt, ""});
  }
  if (spec.all)
    for (LayerChoice& c : choices) choose(c, *spec.all, "all");
  require(choices.size() != 1 || !spec.first || !spec.last || *spec.first == *spec.last, "prepare",
          "quant.first and quant.last fall on one layer, '", choices.empty() ? "" : choices[0].layer,
          "', the only one that can be quantized. Give one of them");
  if (!choices.empty()) {
    if (spec.first) choose(choices.front(), *spec.first, "first");
    if (spec.last) choose(choices.back(), *spec.last, "last");
  }
  for (const QuantRule& rule : spec.rules) {
    detail::check_glob(rule.layers);
    bool any = false;
    for (LayerChoice& c : choices)
      if (detail::glob_matches(rule.layers, c.layer)) {
        choose(c, rule.quant, rule.layers);
        any = true;
      }
    require(any, "prepare", "the rule '", rule.layers, "' matches no layer: the quantizable layers are ",
            names_of(choices), ". Rules match the whole path; * matches any characters.");
  }
  for (const LayerChoice& c : choices) {
    if (!c.quant) continue;
    check_shared(c, choices);
    check_ids(c, choices);
  }
  for (LayerChoice& c : choices)
    if (c.quant) fit_to_windows(*c.slot, *c.quant);
  return choices;
}

namespace {

// mode: if empty, layers keep their own.
void prepare_layers(Module& model, const PrepareSpec& spec, const std::optional<QuantMode>& mode,
                    const std::string& root) {
  const std::vector<LayerChoice> choices = choose_layers(model, spec, root);
  require(spec.empty() || !choices.empty(), "prepare", "the model has no layer that can be quantized.");
  const auto mode_of = [&](const LayerChoice& c) { return mode.value_or(c.slot->mode()); };
  for (const LayerChoice& c : choices) {
    if (c.quant)
      check_layer("prepare", c.layer, wanted(c), [&] { c.slot->check(*c.quant, mode_of(c)); });
    else
      check_layer("prepare", c.layer, wanted(mode_of(c)), [&] { c.slot->check_mode(mode_of(c)); });
  }
  for (const LayerChoice& c : choices)
    if (c.quant) c.slot->set(*c.quant, mode_of(c));
  operands_follow_slots(model);
  if (mode) walk(model, [&](Module& m) { m.set_quant_mode(*mode); });
  if (model.initialized()) model.check_paths();
}

}  // namespace

void prepare(Module& model, const PrepareSpec& spec, const std::string& root) {
  prepare_layers(model, spec, std::nullopt, root);
}

void prepare(Module& model, const PrepareSpec& spec, const QuantMode& mode, const std::string& root) {
  prepare_layers(model, spec, mode, root);
}

void convert(Module& model) {
  require(model.initialized(), "convert", "the model has no codes before initialize. Initialize or load it first.");
  for (Quantizable* slot : model.quantizables()) slot->convert();
  operands_follow_slots(model);
  // Learned parts of weights are gone by now; those of inputs stay as frozen values.
  for (Parameter* p : model.parameters()) p->change([](ParameterSpec& spec) { spec.converted = true; });
  walk(model, [](Module& m) {
    if (auto* q = dynamic_cast<ActivationQuantizer*>(&m))
      q->set_quant_mode({q->quant_mode().quantization == QuantSwitch::kOff ? QuantSwitch::kOff : QuantSwitch::kFrozen,
                         /*observers=*/false});
  });
}

void set_quant_mode(Module& model, const QuantMode& mode) {
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot))
    check_layer("set_quant_mode", at.layer, wanted(mode), [&] { at.slot->check_mode(mode); });
  walk(model, [&](Module& m) { m.set_quant_mode(mode); });
}

void mark_hidden_weights(Module& model) {
  const std::vector<Quantizable*> slots = model.quantizables();
  for (const Quantizable* slot : slots) {
    if (slot->weight_owner() != nullptr) continue;
    const bool hidden = slot->kind() != Quantizable::Kind::kEmbedding && &slot->weight() != &slots.back()->weight();
    slot->weight().set_hidden(hidden);
    if (LowRankAdapter* const adapter = slot->adapter())
      for (Parameter* p : adapter->parameters()) p->set_hidden(hidden);
  }
}

}  // namespace bitgrad
