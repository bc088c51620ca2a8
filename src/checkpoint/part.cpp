#include "checkpoint/part.h"

#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"

#include "checkpoint/records.h"
#include "train/pieces.h"

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

void save_part(const std::string& path, const std::vector<Parameter*>& parameters,
               const std::vector<Module::Buffer>& buffers, const std::string& record) {
  Pieces pieces;
  for (const Parameter* p : parameters) add_parameter(pieces, *p);
  for (const Module::Buffer& b : buffers) pieces.add_tensor(b.path, b.tensor);
  CheckpointHeader header;
  header.model = record;
  header.kernel_hash = kernel_table_hash();
  write_pieces(
      path, pieces, header,
      {{"bitgrad.kind", std::string(enum_name(SavedKind::kPart))}, {"bitgrad.tensors", tensors_text(parameters)}});
}

std::set<std::string> own_values(Module& model, const std::function<bool(const std::string&)>& in_file) {
  std::set<std::string> own;
  collect_own(model, in_file, own);
  return own;
}

}  // namespace bitgrad::checkpoint
