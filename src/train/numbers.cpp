#include "train/numbers.h"

namespace bitgrad::detail {

Numbers::Numbers(Module& model) {
  for (const Parameter* p : model.parameters()) {
    Held held;
    if (p->has_master()) held.master = p->master().clone(MemoryKind::kWorkspace);
    if (p->low_bit()) held.value = p->value().clone(MemoryKind::kWorkspace);
    parameters_[p->path()] = std::move(held);
  }
  for (const Module::Buffer& b : model.buffers()) buffers_[b.path] = b.tensor.clone(MemoryKind::kWorkspace);
}

void Numbers::put_back(Module& model) const {
  for (Parameter* p : model.parameters()) {
    const Held& held = parameters_.at(p->path());
    p->restore(held.master, held.value);
  }
  for (const Module::Buffer& b : model.buffers()) b.tensor.copy_from(buffers_.at(b.path));
}

}  // namespace bitgrad::detail
