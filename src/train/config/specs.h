// Converts the resolved configuration to the library's own plain data.
#pragma once

#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/train/config.h"

namespace bitgrad::config {

QuantSpec quant_spec(const QuantConfig& c);
// The inverse, for activations whose scheme has neither learned parts nor alpha.
QuantConfig activations_config(const QuantSpec& spec, DType grad);
ParameterSpec parameter_spec(const QuantConfig& c);  // of weights
LayerSpec layer_spec(const LayerConfig& c);
std::vector<LayerSpec> layer_specs(const std::vector<LayerConfig>& layers);
// The layer at this place in the model, as in LayerError: "3.body.1". If the place names a list, its nearest container;
// nullptr if there is none.
const LayerConfig* layer_at(const std::vector<LayerConfig>& layers, std::string_view place);
OptimizerSpec optimizer_spec(const OptimConfig& c);
// The recipe, with the parts that replace its own; if there are any, LayerQuant::recipe is "custom".
LayerQuant layer_quant(const LayerQuantConfig& c);
PrepareSpec prepare_spec(const PrepareConfig& c);
QuantMode quant_mode(const QuantPhaseConfig& c);

}  // namespace bitgrad::config
