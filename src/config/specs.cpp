#include "config/specs.h"

#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/layers.h"
#include "config/choices.h"
#include "nn/expanded_layers.h"

namespace bitgrad::config {
ActivationQuant plain_activations(const QuantSpec& spec, DType grad) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  require(quantizer.learned(spec).empty(), "quant", "scheme ", spec.scheme,
          " has learned parts, which a rule cannot hold");
  ActivationQuant out{spec, std::nullopt, grad, {}};
  out.spec.ste = ste_rule(spec);
  out.spec.ste_t = spec.ste_t_first;
  out.spec.keys = quantizer.values_of_keys(spec);
  return out;
}

const LayerSpec* layer_at(std::span<const LayerSpec> layers, std::string_view place) {
  const auto head = [&] { return place.substr(0, place.find('.')); };
  const auto go_on = [&] { place.remove_prefix(std::min(head().size() + 1, place.size())); };
  int64_t index = 0;
  if (parse_whole(std::string(head()), index) != NumberResult::kOk || index < 0 || index >= std::ssize(layers))
    return nullptr;
  const LayerSpec& layer = layers[static_cast<size_t>(index)];
  go_on();
  using Lists = LayerLists::Kind;
  const Lists form = find_layer_kind(layer.kind)->lists.kind;
  if (place.empty() || form == Lists::kNone || layer.lists.empty()) return &layer;
  const LayerList* list = &layer.lists[0];
  if (form == Lists::kNamed || form == Lists::kIndexed) {
    const auto named =
        std::find_if(layer.lists.begin(), layer.lists.end(), [&](const LayerList& l) { return l.key == head(); });
    if (named == layer.lists.end()) return &layer;
    list = &*named;
  }
  std::span<const LayerSpec> below = list->layers;
  int64_t round = 0;
  if (form == Lists::kRepeated && !below.empty() && parse_whole(std::string(head()), round) == NumberResult::kOk &&
      round >= 0)
    below = bitgrad::detail::layers_of_round(layer, round);
  if (form != Lists::kInline) go_on();
  const LayerSpec* const inner = place.empty() ? nullptr : layer_at(below, place);
  return inner != nullptr ? inner : &layer;
}

LayerQuant layer_quant(const LayerQuantConfig& c) {
  LayerQuant quant = find_recipe(c.recipe);
  if (c.group) {
    require(quant.weight && quant.weight->granularity.kind == Granularity::kGroup, "quant", "recipe ", c.recipe,
            " has no groups, got group ", *c.group);
    quant.weight->granularity.group = *c.group;
  }
  if (c.weights) {
    quant.weight = c.weights->quant;
    quant.master = c.weights->master;
    quant.grad = c.weights->grad;
    quant.latent_clamp = c.weights->latent_clamp;
    if (choices::has_learned_parts(c.weights->quant)) quant.learned = c.weights->learned;
  }
  if (c.activations) {
    quant.input = c.activations->spec;
    quant.observer = c.activations->observer;
    quant.input_grad = c.activations->grad;
    if (choices::has_learned_parts(c.activations->spec)) quant.learned = c.activations->learned;
  }
  if (c.weights || c.activations) quant.recipe = "custom";
  if (c.compute) quant.compute = *c.compute;
  if (c.output_rounding) quant.output_rounding = *c.output_rounding;
  return quant;
}

PrepareSpec prepare_spec(const PrepareConfig& c) {
  PrepareSpec spec;
  if (c.recipe) spec.all = find_recipe(*c.recipe);
  if (c.first) spec.first = find_recipe(*c.first);
  if (c.last) spec.last = find_recipe(*c.last);
  for (const QuantRuleConfig& rule : c.rules) spec.rules.push_back({rule.layers, layer_quant(rule.quant)});
  return spec;
}

}  // namespace bitgrad::config
