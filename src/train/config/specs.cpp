#include "train/config/specs.h"

#include <algorithm>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/quant/rounding.h"
#include "train/config/choices.h"
#include "train/config/numbers.h"

namespace bitgrad::config {
namespace {

std::optional<float> narrowed(const std::optional<double>& x) {
  return x ? std::optional<float>(static_cast<float>(*x)) : std::nullopt;
}

ObserverSpec observer_spec(const ObserverConfig& c) {
  return {c.name, static_cast<float>(c.momentum), static_cast<float>(c.percentile)};
}

void set_learned(LayerQuant& quant, const LearnedConfig& c) {
  quant.learned_lr_factor = static_cast<float>(c.lr_factor);
  quant.learned_weight_decay = narrowed(c.weight_decay);
}

void set_weights(LayerQuant& quant, const QuantConfig& c) {
  quant.weight.reset();
  if (!c.dtype.is_float()) quant.weight = quant_spec(c);
  quant.master = choices::master_kinds().parse(c.master);
  quant.grad = c.grad;
  quant.latent_clamp = narrowed(c.latent_clamp);
  if (choices::has_learned_parts(c)) set_learned(quant, c.learned);
}

void set_activations(LayerQuant& quant, const QuantConfig& c) {
  quant.input = quant_spec(c);
  quant.observer.reset();
  if (c.observer.name != "none") quant.observer = observer_spec(c.observer);
  quant.input_grad = c.grad;
  if (choices::has_learned_parts(c)) set_learned(quant, c.learned);
}

}  // namespace

QuantSpec quant_spec(const QuantConfig& c) {
  QuantSpec spec;
  spec.dtype = c.dtype;
  spec.scheme = c.scheme;
  spec.granularity = c.granularity;
  spec.alpha = c.alpha != "none";
  spec.alpha_grad = c.alpha_grad;
  spec.reduce_range = c.reduce_range;
  spec.rounding = parse_rounding(c.rounding);
  if (!c.ste.empty()) spec.ste = parse_ste(c.ste);
  spec.ste_t_first = static_cast<float>(c.ste_t[0]);
  spec.ste_t_last = static_cast<float>(c.ste_t[1]);
  spec.ste_t = spec.ste_t_first;
  spec.first_clip = static_cast<float>(c.first_clip);
  spec.scale = static_cast<float>(c.scale);
  spec.offset = static_cast<float>(c.offset);
  spec.eps = narrowed(c.eps);
  spec.pow2 = c.pow2;
  spec.div = c.div;
  spec.scale_dtype = c.scale_dtype;
  spec.keys = c.keys;
  return spec;
}

// Neither alpha, which is stored here as the name of a granularity, nor learned parts can be expressed by a range.
QuantConfig activations_config(const QuantSpec& spec, DType grad) {
  require(!spec.alpha && find_quantizer(spec.scheme).learned(spec).empty(), "quant", "scheme ", spec.scheme,
          " has more than its range says");
  QuantConfig c;
  c.dtype = spec.dtype;
  c.scheme = spec.scheme;
  c.granularity = spec.granularity;
  c.reduce_range = spec.reduce_range;
  c.rounding = rounding_name(spec.rounding);
  c.ste = ste_name(ste_rule(spec));
  c.ste_t = {spec.ste_t_first, spec.ste_t_last};
  c.scale = spec.scale;
  c.offset = spec.offset;
  if (spec.eps) c.eps = *spec.eps;
  c.pow2 = spec.pow2;
  c.div = spec.div;
  c.scale_dtype = spec.scale_dtype;
  c.keys = known_quantizer(spec.scheme).values_of_keys(spec);
  c.grad = grad;
  return c;
}

ParameterSpec parameter_spec(const QuantConfig& c) {
  ParameterSpec spec;
  if (!c.dtype.is_float()) spec.quant = quant_spec(c);
  spec.grad = c.grad;
  spec.init = {c.init.kind, c.init.a, c.init.b};
  spec.latent_clamp = narrowed(c.latent_clamp);
  spec.master = choices::master_kinds().parse(c.master);
  spec.moments = choices::moment_kinds().parse(c.moments);
  if (c.optimizer != "default") spec.optimizer = c.optimizer;
  spec.lr_factor = static_cast<float>(c.lr_factor);
  spec.weight_decay = narrowed(c.weight_decay);
  spec.frozen = c.frozen;
  spec.learned_lr_factor = static_cast<float>(c.learned.lr_factor);
  spec.learned_weight_decay = narrowed(c.learned.weight_decay);
  return spec;
}

LayerSpec layer_spec(const LayerConfig& c) {
  const LayerKind& kind = *find_layer_kind(c.kind);
  LayerSpec spec;
  spec.kind = c.kind;
  spec.attributes = c.attributes;
  for (const LayerListConfig& list : c.lists) spec.lists.push_back({list.key, layer_specs(list.layers)});
  if (kind.weights) spec.weight = parameter_spec(c.quant);
  if (kind.product) {
    spec.compute = choices::compute_kinds().parse(c.compute);
    spec.gx = choices::product_modes().parse(c.backward.gx);
    spec.gw = choices::product_modes().parse(c.backward.gw);
    spec.gradient_rounding = parse_rounding(c.backward.rounding);
    spec.gx_per_group = c.backward.per_group;
  }
  if (kind.quantizer == LayerKind::Quantizer::kNone) return spec;
  spec.activation = quant_spec(c.quant);
  if (kind.quantizer == LayerKind::Quantizer::kGradients) return spec;
  spec.activation_grad = c.quant.grad;
  if (c.quant.observer.name != "none") spec.observer = observer_spec(c.quant.observer);
  spec.learned_lr_factor = static_cast<float>(c.quant.learned.lr_factor);
  spec.learned_weight_decay = narrowed(c.quant.learned.weight_decay);
  return spec;
}

std::vector<LayerSpec> layer_specs(const std::vector<LayerConfig>& layers) {
  std::vector<LayerSpec> specs;
  for (const LayerConfig& layer : layers) specs.push_back(layer_spec(layer));
  return specs;
}

const LayerConfig* layer_at(const std::vector<LayerConfig>& layers, std::string_view place) {
  const auto head = [&] { return place.substr(0, place.find('.')); };
  const auto go_on = [&] { place.remove_prefix(std::min(head().size() + 1, place.size())); };
  int64_t index = 0;
  if (parse_whole(std::string(head()), index) != NumberResult::kOk || index < 0 || index >= std::ssize(layers))
    return nullptr;
  const LayerConfig& layer = layers[static_cast<size_t>(index)];
  go_on();
  using Lists = LayerLists::Kind;
  const Lists form = find_layer_kind(layer.kind)->lists.kind;
  if (place.empty() || form == Lists::kNone || layer.lists.empty()) return &layer;
  const LayerListConfig* list = &layer.lists[0];
  if (form == Lists::kNamed || form == Lists::kIndexed) {
    const auto named =
        std::find_if(layer.lists.begin(), layer.lists.end(), [&](const LayerListConfig& l) { return l.key == head(); });
    if (named == layer.lists.end()) return &layer;
    list = &*named;
  }
  if (form != Lists::kInline) go_on();
  const LayerConfig* const inner = place.empty() ? nullptr : layer_at(list->layers, place);
  return inner != nullptr ? inner : &layer;
}

OptimizerSpec optimizer_spec(const OptimConfig& c) {
  OptimizerSpec spec;
  spec.name = c.name;
  spec.momentum = static_cast<float>(c.momentum);
  spec.nesterov = c.nesterov;
  spec.beta1 = c.betas[0];
  spec.beta2 = c.betas[1];
  spec.eps = static_cast<float>(c.eps);
  spec.weight_decay = static_cast<float>(c.weight_decay);
  spec.decay_vectors = c.decay == "all";
  spec.moments = choices::moment_kinds().parse(c.moments);
  spec.fused = c.fused == "auto";
  spec.base_lr = c.lr;
  spec.bop_gamma = static_cast<float>(c.bop.gamma);
  spec.bop_threshold = static_cast<float>(c.bop.threshold);
  spec.clip_value = static_cast<float>(c.clip_value.value_or(0));
  spec.clip_norm = static_cast<float>(c.clip_norm.value_or(0));
  return spec;
}

LayerQuant layer_quant(const LayerQuantConfig& c) {
  LayerQuant quant = find_recipe(c.recipe);
  if (c.group) {
    require(quant.weight && quant.weight->granularity.kind == Granularity::kGroup, "quant", "recipe ", c.recipe,
            " has no groups, got group ", *c.group);
    quant.weight->granularity.group = *c.group;
  }
  if (c.weights) set_weights(quant, *c.weights);
  if (c.activations) set_activations(quant, *c.activations);
  if (c.weights || c.activations) quant.recipe = "custom";
  if (!c.compute.empty()) quant.compute = choices::compute_kinds().parse(c.compute);
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

QuantMode quant_mode(const QuantPhaseConfig& c) {
  return {choices::quant_switch_kinds().parse(c.quantization), c.observers, c.norm_statistics};
}

}  // namespace bitgrad::config
