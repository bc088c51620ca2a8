// Converts the resolved configuration to the library's own plain data.
#pragma once

#include <span>
#include <string_view>

#include "bitgrad/config/config.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"

namespace bitgrad::config {

// Activations in the form that a configuration gives them: the straight-through rule and the scheme's keys are written
// out. Throws Error for a scheme with learned parts.
ActivationQuant plain_activations(const QuantSpec& spec, DType grad);
// The layer at this place in the model, as in LayerError: "3.body.1". If the place names a list, its nearest container;
// nullptr if there is none. In a repeat whose layers take turns, the one of that round.
const LayerSpec* layer_at(std::span<const LayerSpec> layers, std::string_view place);
// The recipe, with the parts that replace its own; if there are any, LayerQuant::recipe is "custom".
LayerQuant layer_quant(const LayerQuantConfig& c);
PrepareSpec prepare_spec(const PrepareConfig& c);

}  // namespace bitgrad::config
