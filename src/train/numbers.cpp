#include "train/numbers.h"

#include <memory>
#include <utility>

namespace bitgrad::detail {

Tensor copy_with_scales(const Tensor& codes) {
  auto params = std::make_shared<QuantParams>(*codes.quant());
  for (auto* part : {&params->scale, &params->zero, &params->offset, &params->statistic})
    if (*part) *part = std::make_shared<const Tensor>((*part)->clone(MemoryKind::kQuantState));
  return codes.without_quant().clone(MemoryKind::kQuantState).with_quant(std::move(params));
}

Numbers::Numbers(Module& model) {
  for (const Parameter* p : model.parameters()) {
    ParameterState held;
    if (p->has_master()) held.master = p->master().clone(MemoryKind::kWorkspace);
    if (p->low_bit()) held.value = copy_with_scales(p->value());
    parameters_[p->path()] = std::move(held);
  }
  for (const Module::Buffer& b : model.buffers()) buffers_[b.path] = b.tensor.clone(MemoryKind::kWorkspace);
}

void Numbers::restore(Module& model) const {
  for (Parameter* p : model.parameters()) {
    const ParameterState& held = parameters_.at(p->path());
    p->restore(held);
  }
  for (const Module::Buffer& b : model.buffers()) b.tensor.copy_from(buffers_.at(b.path));
}

}  // namespace bitgrad::detail
