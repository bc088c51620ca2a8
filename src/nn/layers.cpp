// Builds layers and models from their specs.
#include "bitgrad/nn/layers.h"

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

}  // namespace bitgrad
