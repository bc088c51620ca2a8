#include "run/adapter_files.h"

#include <algorithm>

#include "bitgrad/base/log.h"
#include "bitgrad/nn/adapter.h"
#include "checkpoint/part.h"
#include "config/weight_names.h"

namespace bitgrad::detail {
namespace {

std::string module_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

std::set<const Parameter*> adapter_parameters(Module& model) {
  std::set<const Parameter*> out;
  for (const AdaptedLayer& l : adapted_layers(model)) {
    out.insert(&l.slot->adapter()->a());
    out.insert(&l.slot->adapter()->b());
  }
  return out;
}

// What belongs to one module.
struct Group {
  std::vector<Parameter*> parameters;
  std::vector<Module::Buffer> buffers;
  bool trains = false, plain = true;  // plain: all fp32
};

}  // namespace

AdapterRest rest_of_adapters(Module& model) {
  AdapterRest rest;
  // Learned parts, and what belongs to quantizers of inputs.
  const std::set<std::string> quantizes = checkpoint::own_values(model, [](const std::string&) { return true; });
  const std::set<const Parameter*> adapters = adapter_parameters(model);
  std::set<std::string> adapted;
  for (const AdaptedLayer& l : adapted_layers(model)) adapted.insert(module_of(l.slot->weight().path()));
  std::map<std::string, Group> groups;
  for (Parameter* p : model.parameters()) {
    if (adapters.count(p) > 0) continue;
    if (quantizes.count(p->path()) > 0) {
      if (!p->spec().frozen) rest.beyond_parameters.push_back(p);
      continue;
    }
    Group& group = groups[module_of(p->path())];
    group.parameters.push_back(p);
    group.trains = group.trains || !p->spec().frozen;
    group.plain = group.plain && !p->low_bit();
  }
  for (const Module::Buffer& b : model.buffers()) {
    if (quantizes.count(b.path) > 0) {
      rest.beyond_buffers.push_back(b);
      continue;
    }
    Group& group = groups[module_of(b.path)];
    group.buffers.push_back(b);
    group.plain = group.plain && b.tensor.dtype() == dtypes::fp32;
  }
  for (const auto& [path, group] : groups) {
    if (!group.trains && group.buffers.empty()) continue;
    if (group.plain && adapted.count(path) == 0) {
      rest.modules.push_back(path);
      rest.parameters.insert(rest.parameters.end(), group.parameters.begin(), group.parameters.end());
      rest.buffers.insert(rest.buffers.end(), group.buffers.begin(), group.buffers.end());
      continue;
    }
    for (Parameter* p : group.parameters)
      if (!p->spec().frozen) rest.beyond_parameters.push_back(p);
    rest.beyond_buffers.insert(rest.beyond_buffers.end(), group.buffers.begin(), group.buffers.end());
  }
  return rest;
}

std::set<std::string> RestValues::paths() const {
  std::set<std::string> out;
  for (const Item& item : items) out.insert(item.parameter != nullptr ? item.parameter->path() : item.buffer.path);
  return out;
}

RestValues rest_values(Module& model, const std::map<std::string, Tensor>& tensors, std::string_view prefix,
                       std::string& wrong) {
  RestValues rest;
  const std::set<const Parameter*> adapters = adapter_parameters(model);
  const auto find = [&](const std::string& path, const Shape& shape, Parameter* parameter,
                        const Module::Buffer& buffer) {
    for (const std::string& name : interop::candidate_names(path, std::nullopt)) {
      const auto found = tensors.find(concat(prefix, name));
      if (found == tensors.end()) continue;
      rest.names.insert(found->first);
      if (found->second.shape() != shape)
        wrong += concat("\n  shape: ", found->first, " is ", found->second.shape(), ", the model has ", shape);
      else if (!found->second.dtype().is_float())
        wrong += concat("\n  dtype: ", found->first, " is ", found->second.dtype(), ", expected fp32, fp16 or bf16");
      else
        rest.items.push_back({found->first, parameter, buffer, found->second});
      return;
    }
  };
  for (Parameter* p : model.parameters())
    if (adapters.count(p) == 0) find(p->path(), p->shape(), p, {});
  for (const Module::Buffer& b : model.buffers())
    if (b.tensor.dtype() == dtypes::fp32) find(b.path, b.tensor.shape(), nullptr, b);
  return rest;
}

void take(const RestValues& rest) {
  for (const RestValues::Item& item : rest.items) {
    if (item.parameter != nullptr) {
      item.parameter->assign(item.values, 0);
      continue;
    }
    const Tensor& to = item.buffer.tensor;
    to.copy_from(to.device().is_cpu() ? item.values : item.values.to_device(to.device(), MemoryKind::kBuffer));
  }
}

void warn_of_missing(Module& model, const std::set<std::string>& taken, const std::string& from) {
  const std::set<const Parameter*> adapters = adapter_parameters(model);
  const std::set<std::string> quantizes = checkpoint::own_values(model, [](const std::string&) { return true; });
  std::vector<std::string> missing;
  for (const Parameter* p : model.parameters())
    if (!p->spec().frozen && adapters.count(p) == 0 && quantizes.count(p->path()) == 0 && taken.count(p->path()) == 0)
      missing.push_back(p->path());
  if (!missing.empty())
    log(LogLevel::kWarning, concat("adapters from ", from, " have no values of ", names_text(missing),
                                   ", which train here: they keep those of model.init_from"));
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kListed = 40;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kListed ? concat(text, " and ", names.size() - kListed, " more") : text;
}

}  // namespace bitgrad::detail
