// Builds layers and models from their descriptions.
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/nn/sequential.h"

namespace bitgrad {

// Throws Error for an unknown kind or an invalid spec. Parameter shapes are known once the layer has been planned.
std::shared_ptr<Module> make_layer(const LayerSpec& spec);
// The same, planned for samples that are vectors of length `in_features`.
std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features);
// Chains the layers; the result is not planned. Throws LayerError, which names the layer.
std::shared_ptr<Sequential> make_layers(const std::vector<LayerSpec>& specs);
// Builds the model and plans it for its input. Parameters have shapes; memory is allocated by initialize.
std::shared_ptr<Sequential> make_model(const ModelSpec& spec);
// The same for samples that are fp32 vectors.
std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), with parameters weight [o,i] and bias [o]. For other compute modes and
// backward modes use make_layer with kind "linear".
std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias = false);

}  // namespace bitgrad
