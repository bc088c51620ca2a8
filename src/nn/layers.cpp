// The list of layer kinds, and models made of them.
#include "bitgrad/nn/layers.h"

#include <map>
#include <mutex>

#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {

#define BITGRAD_LAYER(name, factory) std::shared_ptr<Module> factory(const LayerSpec& spec, int64_t in_features);
#include "nn/layers.inc"
#undef BITGRAD_LAYER
std::shared_ptr<Module> make_unary_layer(UnaryOp op);

namespace {

std::map<std::string, LayerFactory>& registry() {
  static std::map<std::string, LayerFactory> layers = [] {
    std::map<std::string, LayerFactory> list{
#define BITGRAD_LAYER(name, factory) {name, factory},
#include "nn/layers.inc"
#undef BITGRAD_LAYER
    };
    for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
      const UnaryOp op = static_cast<UnaryOp>(i);
      list[std::string(unary_name(op))] = [op](const LayerSpec&, int64_t) { return make_unary_layer(op); };
    }
    return list;
  }();
  return layers;
}
std::mutex g_mutex;

}  // namespace

std::vector<std::string> layer_names() {
  const std::lock_guard lock(g_mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

void register_layer(const std::string& name, LayerFactory factory) {
  const std::lock_guard lock(g_mutex);
  require(registry().emplace(name, std::move(factory)).second, "register_layer", "a layer kind '", name,
          "' exists already");
}

std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features) {
  LayerFactory factory;
  {
    const std::lock_guard lock(g_mutex);
    const auto found = registry().find(spec.kind);
    if (found != registry().end()) factory = found->second;
  }
  if (!factory) fail("layer", unknown_name("layer", spec.kind, layer_names()));
  return factory(spec, in_features);
}

std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features) {
  auto model = std::make_shared<Sequential>();
  TensorMeta meta;
  meta.features = in_features;
  for (size_t i = 0; i < specs.size(); ++i) {
    try {
      auto layer = make_layer(specs[i], meta.features);
      meta = layer->plan(meta);
      model->append(std::move(layer));
    } catch (const Error& e) {
      throw Error(concat("layer ", i, " (", specs[i].kind, "): ", e.what()), e.code());
    }
  }
  return model;
}

}  // namespace bitgrad
