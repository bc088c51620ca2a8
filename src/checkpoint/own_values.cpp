#include "checkpoint/own_values.h"

#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"

namespace bitgrad::checkpoint {
namespace {

void collect_own(Module& module, const std::function<bool(const std::string&)>& in_file, std::set<std::string>& own) {
  for (const Parameter* p : module.parameters())
    for (const auto& part : p->learned()) own.insert(part->path());
  const LayerKind* const kind = find_layer_kind(module.kind());
  if (kind != nullptr && kind->quantizer == LayerKind::Quantizer::kActivations) {
    for (const Parameter* p : module.parameters()) own.insert(p->path());
    for (const Module::Buffer& b : module.buffers()) own.insert(b.path);
  }
  if (module.kind() == LowRankAdapter::kKind)
    for (const Parameter* p : module.parameters())
      if (!in_file(p->path())) own.insert(p->path());
  for (Module* child : module.children()) collect_own(*child, in_file, own);
}

}  // namespace

std::set<std::string> own_values(Module& model, const std::function<bool(const std::string&)>& in_file) {
  std::set<std::string> own;
  collect_own(model, in_file, own);
  return own;
}

}  // namespace bitgrad::checkpoint
