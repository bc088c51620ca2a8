// Causal models: the output of a layer for a row may depend on earlier rows of the same sample, and on no others.
#include <algorithm>

#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/module.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {

bool Module::causal() {
  const LayerKind* const known = find_layer_kind(kind());
  return (known != nullptr && known->causal) ||
         std::any_of(children_.begin(), children_.end(), [](const auto& c) { return c.item->causal(); });
}

void Module::check_causal() {
  if (causal()) check_all_rows();
}

// A slot's input quantizer reports errors under its layer's name, as in plan.
void Module::check_all_rows() {
  check_rows();
  for (auto& c : children_) {
    const bool of_slot = std::any_of(quantizables_.begin(), quantizables_.end(),
                                     [&](const auto& slot) { return slot->input_quantizer() == c.item.get(); });
    if (of_slot)
      c.item->check_rows();
    else
      in_layer(c.name, [&] { c.item->check_all_rows(); });
  }
}

const SequenceState& Module::sequence() const {
  static const SequenceState kBegin;
  return state_ != nullptr ? state_->sequence : kBegin;
}

}  // namespace bitgrad
