// Builds layers and models from their specs.
#include "bitgrad/nn/layers.h"

#include <algorithm>

#include "base/registration.h"
#include "bitgrad/base/text.h"
#include "nn/expanded_layers.h"

namespace bitgrad {

std::shared_ptr<Module> make_layer(const LayerSpec& spec) {
  auto full = std::make_shared<LayerSpec>(completed(spec));
  std::shared_ptr<Module> layer = kind_of(spec).make(*full);
  ensure(layer != nullptr, spec.kind, "the kind returned no layer");
  layer->set_spec(std::move(full));
  return layer;
}

std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features) {
  std::shared_ptr<Module> layer = make_layer(spec);
  Form form;
  form.sample = {in_features};
  if (kind_of(spec).ids) form.dtype = dtypes::int32;
  layer->plan(form);
  return layer;
}

std::shared_ptr<Sequential> make_layers(const std::vector<LayerSpec>& specs) {
  auto model = std::make_shared<Sequential>();
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string name = specs[i].name.empty() ? std::to_string(i) : specs[i].name;
    model->append(in_layer(name, [&] { return make_layer(specs[i]); }), name);
  }
  return model;
}

std::shared_ptr<Sequential> make_model(const ModelSpec& spec) {
  require(detail::expanded_layers(spec.layers) <= detail::kMostLayers, "model", detail::too_many_layers());
  auto model = make_layers(spec.layers);
  model->connect_all(*model);
  check_values(spec.input.values);
  Form input = spec.input;
  input.samples = 0;
  model->plan(input);
  return model;
}

std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features) {
  ModelSpec model;
  model.input.sample = {in_features};
  model.layers = specs;
  return make_model(model);
}

#define BITGRAD_LAYER(function) LayerKind function();
#include "nn/layers/layers.inc"
#undef BITGRAD_LAYER
std::vector<LayerKind> unary_kinds();

namespace {

void check_kind(const LayerKind& kind) {
  constexpr std::string_view kShared[] = {"weights", "compute", "backward", "layers"};
  check_kind_name("register_layer", kind.name);
  require(kind.make != nullptr, "register_layer", "kind '", kind.name, "' has no make function");
  check_keys("register_layer", concat("kind '", kind.name, '\''), kind.keys);
  for (const Key& key : kind.keys)
    require(std::find(std::begin(kShared), std::end(kShared), key.name) == std::end(kShared), "register_layer",
            "kind '", kind.name, "': the key '", key.name,
            "' exists already (weights, compute, backward and layers are shared by all kinds)");
}

std::vector<LayerKind> built_in() {
  std::vector<LayerKind> kinds = {
#define BITGRAD_LAYER(function) function(),
#include "nn/layers/layers.inc"
#undef BITGRAD_LAYER
  };
  for (LayerKind& kind : unary_kinds()) kinds.push_back(std::move(kind));
  for (const LayerKind& kind : kinds) check_kind(kind);
  return kinds;
}
detail::KindList<LayerKind>& registry() {
  static detail::KindList<LayerKind> all(built_in());
  return all;
}

}  // namespace

void register_layer(LayerKind kind) {
  check_kind(kind);
  registry().add("register_layer", "a layer kind", std::move(kind));
}

const LayerKind* find_layer_kind(std::string_view name) { return registry().find(name); }
std::vector<const LayerKind*> layer_kinds() { return registry().all(); }

std::vector<std::string> layer_names() {
  std::vector<std::string> names = registry().names();
  std::sort(names.begin(), names.end());
  return names;
}

const LayerKind& kind_of(const LayerSpec& spec) {
  const LayerKind* const kind = find_layer_kind(spec.kind);
  if (kind == nullptr) fail("layer", unknown_name("layer", spec.kind, layer_names()));
  return *kind;
}

LayerSpec completed(const LayerSpec& spec) {
  LayerSpec out = spec;
  const LayerKind& kind = kind_of(spec);
  out.attributes = completed(kind.name, kind.keys, spec.attributes);
  return out;
}

}  // namespace bitgrad
