// What the resolved configuration says, in the library's own plain data.
#pragma once

#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/train/config.h"

namespace bitgrad::config {

QuantSpec quant_spec(const QuantConfig& c);
// The other way round, for activations whose scheme neither learns nor takes alpha.
QuantConfig activations_config(const QuantSpec& spec, DType grad);
ParameterSpec parameter_spec(const QuantConfig& c);  // of weights
LayerSpec layer_spec(const LayerConfig& c);
std::vector<LayerSpec> layer_specs(const std::vector<LayerConfig>& layers);
// The layer with this place in the model, as LayerError says it: "3.body.1". The nearest container around it where the
// place names a list; nullptr: none.
const LayerConfig* layer_at(const std::vector<LayerConfig>& layers, std::string_view place);
OptimizerSpec optimizer_spec(const OptimConfig& c);
// The recipe, then what is put in the place of its parts; with those LayerQuant::recipe is "custom".
LayerQuant layer_quant(const LayerQuantConfig& c);
PrepareSpec prepare_spec(const PrepareConfig& c);
QuantMode quant_mode(const QuantPhaseConfig& c);

}  // namespace bitgrad::config
