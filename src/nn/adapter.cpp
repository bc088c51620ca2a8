#include "bitgrad/nn/adapter.h"

#include <algorithm>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "nn/activation_quantizer.h"
#include "nn/glob.h"

namespace bitgrad {
namespace {

std::string names_of(const std::vector<AdaptedLayer>& layers) {
  return layers.empty() ? "none" : joined(layers, ", ", &AdaptedLayer::layer);
}

std::vector<AdaptedLayer> linear_layers(Module& model, const std::string& root) {
  std::vector<AdaptedLayer> layers;
  for (const Module::QuantizableAt& at : model.quantizables_at(root))
    if (at.slot->kind() == Quantizable::Kind::kLinear && at.slot->weight_owner() == nullptr)
      layers.push_back({at.layer, at.slot});
  return layers;
}

// Layers that match a glob, in order and without duplicates.
std::vector<AdaptedLayer> chosen_layers(const std::vector<AdaptedLayer>& layers,
                                        const std::vector<std::string>& globs) {
  std::vector<bool> chosen(layers.size());
  for (const std::string& glob : globs) {
    detail::check_glob(glob);
    bool any = false;
    for (size_t i = 0; i < layers.size(); ++i)
      if (detail::glob_matches(glob, layers[i].layer)) any = chosen[i] = true;
    require(any, "adapters", "layers: '", glob, "' matches no linear layer: these are ", names_of(layers),
            ". Globs match the whole path; * matches any characters.");
  }
  std::vector<AdaptedLayer> out;
  for (size_t i = 0; i < layers.size(); ++i)
    if (chosen[i]) out.push_back(layers[i]);
  return out;
}

// Learned steps, offsets and clips of activations. They follow the inputs, which adapters change.
void add_learned_of_activations(Module& module, std::set<const Parameter*>& learned) {
  if (dynamic_cast<ActivationQuantizer*>(&module) != nullptr)
    for (const Parameter* p : module.parameters()) learned.insert(p);
  for (Module* child : module.children()) add_learned_of_activations(*child, learned);
}

// Freezes everything except learned parts of activations and what `train` names. Must run before adapters are added, or
// they would be frozen too.
void freeze(Module& model, const std::vector<std::string>& train, const std::string& root) {
  std::vector<bool> used(train.size()), effective(train.size());
  std::set<const Parameter*> learned;
  add_learned_of_activations(model, learned);
  for (const auto& [path, parameter] : model.parameters_at(root)) {
    const std::string layer = path.substr(0, path.rfind('.'));
    bool trains = learned.count(parameter) > 0;
    for (size_t i = 0; i < train.size(); ++i)
      if (detail::glob_matches(train[i], path) || detail::glob_matches(train[i], layer)) {
        trains = used[i] = true;
        effective[i] = effective[i] || !parameter->spec().frozen;
      }
    if (!trains) parameter->change([](ParameterSpec& spec) { spec.frozen = true; });
  }
  for (size_t i = 0; i < train.size(); ++i) {
    require(used[i], "adapters", "train: '", train[i],
            "' matches no layer with parameters. Globs match the whole path; * matches any characters.");
    require(effective[i], "adapters", "train: all that '", train[i],
            "' matches is frozen. Take it out of train.frozen (weights: {frozen: true}) or of adapters.train");
  }
}

std::string name_of(const Quantizable* slot, const std::vector<Module::QuantizableAt>& slots) {
  for (const Module::QuantizableAt& at : slots)
    if (at.slot == slot) return at.layer;
  return "";
}

// A layer that shares a weight: `train` must name the layer that owns it, and an adapter of the owner would change,
// once merged, what the other reads.
void check_shared(Module& model, const AdapterRule& rule, const std::vector<AdaptedLayer>& layers,
                  const std::string& root) {
  const std::vector<Module::QuantizableAt> slots = model.quantizables_at(root);
  for (const Module::QuantizableAt& at : slots) {
    const Quantizable* const owner = at.slot->weight_owner();
    if (owner == nullptr) continue;
    const std::string name = name_of(owner, slots);
    for (const std::string& glob : rule.train)
      require(!detail::glob_matches(glob, at.layer) || !at.slot->weight().spec().frozen, "adapters", "train: '", glob,
              "' names '", at.layer, "', which has no weight of its own, but that of '", name,
              "', which is frozen. Name '", name, "' too");
    for (const AdaptedLayer& l : layers)
      require(l.slot != owner, "adapters", "layers: '", l.layer, "' shares its weight with '", at.layer,
              "', which has no adapter: merged, it would change both. Leave it out, or train it by adapters.train");
  }
}

}  // namespace

namespace {

// Layers whose weight trains itself need no adapter.
void leave_out_trained(std::vector<AdaptedLayer>& layers) {
  std::vector<AdaptedLayer> held;
  for (const AdaptedLayer& l : layers)
    if (l.slot->weight().spec().frozen) held.push_back(l);
  require(!held.empty(), "adapters", "layers: each of ", names_of(layers),
          " trains by adapters.train: no layer is left for an adapter");
  layers = std::move(held);
}

}  // namespace

void add_adapters(Module& model, const AdapterRule& rule, const std::string& root) {
  require(!model.initialized(), "adapters", "the model is initialized: add adapters before, and load its values then");
  require(!rule.layers.empty(), "adapters", "layers: got no glob, expected at least one");
  for (const std::string& glob : rule.train) detail::check_glob(glob);
  std::vector<AdaptedLayer> layers = chosen_layers(linear_layers(model, root), rule.layers);
  freeze(model, rule.train, root);
  leave_out_trained(layers);
  check_shared(model, rule, layers, root);
  for (const AdaptedLayer& l : layers) {
    try {
      l.slot->adapt(rule.adapter);
    } catch (const Error& e) {
      throw Error(concat("layer '", l.layer, "': ", e.what()), e.code());
    }
  }
}

std::vector<AdaptedLayer> adapted_layers(Module& model) {
  std::vector<AdaptedLayer> layers = linear_layers(model, kModelRoot);
  std::erase_if(layers, [](const AdaptedLayer& l) { return l.slot->adapter() == nullptr; });
  return layers;
}

void merge_adapters(Module& model, bool to_float) {
  const std::vector<AdaptedLayer> layers = adapted_layers(model);
  require(!layers.empty(), "merge", "the model has no adapters");
  require(model.initialized(), "merge", "the model has no values before initialize. Initialize or load it first.");
  for (const AdaptedLayer& l : layers) {
    Quantizable& slot = *l.slot;
    Parameter& weight = slot.weight();
    require(!weight.spec().converted, "merge", "layer '", l.layer,
            "' is converted: its weight cannot change. Merge the checkpoint that it was made of");
    const DeviceGuard own(weight.value().device());
    if (to_float) {
      LayerQuant quant = slot.quant();
      quant.weight.reset();
      quant.compute = Compute::kPacked;
      slot.set(quant);
    }
    const Tensor host = weight.value().on_host();
    Tensor numbers;
    {
      const DeviceGuard cpu(Device::cpu());
      numbers = weight.low_bit() ? dequantize_tensor(host, MemoryKind::kWorkspace) : host.clone(MemoryKind::kWorkspace);
      slot.adapter()->add_to(numbers);
    }
    weight.assign(numbers, 0);
    slot.drop_adapter();
  }
}

}  // namespace bitgrad
