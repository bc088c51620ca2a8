#include "bitgrad/nn/module.h"

#include "bitgrad/base/error.h"
#include "bitgrad/nn/model_spec.h"
#include "nn/activation_quantizer.h"
#include "nn/glob.h"

namespace bitgrad {
namespace {

using ModuleAt = std::pair<std::string, Module*>;

// Whether training can change the module or one below it.
bool changes(Module& module) {
  const auto* const quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  if (quantizer != nullptr && quantizer->quant().observer) return true;
  if (!module.parameters_at("").empty()) return true;
  for (Module* child : module.children())
    if (changes(*child)) return true;
  return false;
}

bool freeze_matching(const std::vector<ModuleAt>& modules, Module& model, const std::string& glob,
                     const std::string& root) {
  bool any = false;
  for (const auto& [path, module] : modules)
    if (detail::glob_matches(glob, path) && changes(*module)) {
      module->freeze();
      any = true;
    }
  for (const auto& [path, parameter] : model.parameters_at(root))
    if (detail::glob_matches(glob, path)) {
      parameter->change([](ParameterSpec& spec) { spec.frozen = true; });
      any = true;
    }
  return any;
}

std::string names_of(const std::vector<ModuleAt>& modules) {
  std::string names;
  for (const auto& [path, module] : modules)
    if (changes(*module)) names += (names.empty() ? "" : ", ") + path;
  return names.empty() ? "none" : names;
}

// A frozen layer must not change through a weight that another layer trains.
void check_shared(Module& model, const std::vector<ModuleAt>& modules, const std::string& root) {
  const std::vector<Module::QuantizableAt> slots = model.quantizables_at(root);
  for (const auto& [path, module] : modules) {
    if (!module->frozen()) continue;
    for (const Module::QuantizableAt& slot : module->quantizables_at(path)) {
      const Quantizable* const owner = slot.slot->weight_owner();
      if (owner == nullptr || slot.slot->weight().spec().frozen) continue;
      std::string name;
      for (const Module::QuantizableAt& at : slots)
        if (at.slot == owner) name = at.layer;
      fail("frozen", "'", slot.layer, "' has no weight of its own, but that of '", name, "', which trains. Freeze '",
           name, "' too");
    }
  }
}

}  // namespace

void freeze_layers(Module& model, const std::vector<std::string>& globs, const std::string& root) {
  if (globs.empty()) return;
  require(!model.initialized(), "frozen", "the model is initialized: freeze layers before, and load its values then");
  std::vector<ModuleAt> modules = model.modules_at(root);
  modules.erase(modules.begin());  // the model itself
  for (const std::string& glob : globs) {
    detail::check_glob(glob);
    require(freeze_matching(modules, model, glob, root), "frozen", "'", glob,
            "' matches no layer that training changes: these are ", names_of(modules),
            ". Globs match the whole path; * matches any characters");
  }
  check_shared(model, modules, root);
}

std::vector<std::string> trained_beside_frozen(Module& model, const std::string& root) {
  std::vector<std::string> names;
  for (const auto& [path, module] : model.modules_at(root)) {
    if (module->spec() == nullptr || !module->spec()->weight.frozen) continue;
    for (const auto& [name, parameter] : module->parameters_at(path))
      if (!parameter->spec().frozen) names.push_back(name);
  }
  return names;
}

}  // namespace bitgrad
