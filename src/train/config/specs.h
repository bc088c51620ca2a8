// What the resolved configuration says, in the library's own plain data.
#pragma once

#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/train/config.h"

namespace bitgrad::config {

QuantSpec quant_spec(const QuantConfig& c);
ParameterSpec parameter_spec(const QuantConfig& c);  // of weights
LayerSpec layer_spec(const LayerConfig& c);
OptimizerSpec optimizer_spec(const OptimConfig& c);

}  // namespace bitgrad::config
