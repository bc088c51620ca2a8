// Layers: one class a file in src/nn/, one line each in src/nn/layers.inc, made by name from a LayerSpec.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

// Plain data that describes one layer; each layer reads the fields that it knows.
struct LayerSpec {
  std::string kind;                      // a line of layers.inc, or a name given to register_layer
  int64_t out = 0;                       // linear
  bool bias = false;                     // linear
  ParameterSpec weight;                  // linear
  std::optional<QuantSpec> activation;   // quantize
  DType activation_grad = dtypes::fp32;  // quantize: dtype of the gradient that leaves the quantizer, fp32 or bf16
  double p = 0.5;                        // dropout
  float eps = 1e-5f, momentum = 0.1f;    // norms
};

using LayerFactory = std::function<std::shared_ptr<Module>(const LayerSpec& spec, int64_t in_features)>;
// Throws Error for an unknown kind (lists the names and the nearest) and for a spec that does not fit.
std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features);
std::vector<std::string> layer_names();
// Adds a layer kind from a user's program. A known name throws Error.
void register_layer(const std::string& name, LayerFactory factory);
// The layers of `specs` one after the other; features flow from `in_features`.
std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]); parameters weight [o,i] and bias [o].
std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias = false);

}  // namespace bitgrad
