// Layers and models made of their descriptions.
#pragma once

#include <memory>
#include <vector>

#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/nn/sequential.h"

namespace bitgrad {

// Throws Error for an unknown kind and for a spec that does not fit. Its parameters have shapes once it is planned.
std::shared_ptr<Module> make_layer(const LayerSpec& spec);
// The same, planned for samples that are vectors of `in_features`.
std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features);
// Layers one after the other, not planned. Errors name the layer: LayerError.
std::shared_ptr<Sequential> make_layers(const std::vector<LayerSpec>& specs);
// The model, planned for its input: parameters have shapes, and memory when it is initialized.
std::shared_ptr<Sequential> make_model(const ModelSpec& spec);
// The same for samples that are vectors of fp32.
std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]); parameters weight [o,i] and bias [o]. Other ways to compute, and modes of
// the backward products: make_layer with kind "linear".
std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias = false);

}  // namespace bitgrad
