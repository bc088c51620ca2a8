// Layers: one class a file in src/nn/, one line each in src/nn/layers.inc, made by name from a LayerSpec.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"

namespace bitgrad {

// Plain data that describes one layer; each layer reads the fields that it knows.
//   linear      fp32 or codes -> fp32. compute fake: the same on dequantized operands; integer: codes -> int32 with a
//               scale (input and weights without zero points or offsets). gx, gw other than fp32 need compute int.
//   embedding   ids int32 or int64 [n,t] -> fp32 [n, t*dim], the rows of parameter weight [num, dim] that they name.
//   quantize    fp32 -> codes. A scheme with learned parts has parameters "step", "offset", "clip", [1] or [features],
//               whose first values come from the first batch of training (step 0: not yet set); an observer has buffers
//               "observer.<name>". int32 with a scale -> codes too: schemes of a range (symmetric, absmax, affine), or
//               with a learned step or clip.
//   dequantize  codes or int32 with a scale -> fp32; fp32 passes.
//   quantize_gradient  identity; quantizes the gradient that passes.
//   relu        fp32, or int32 with a scale. Other pointwise functions, norms: fp32. dropout: fp32 or codes.
struct LayerSpec {
  std::string kind = {};            // a line of layers.inc, or a name given to register_layer
  int64_t out = 0;                  // linear
  bool bias = false;                // linear
  int64_t num = 0, dim = 0;         // embedding: rows of the table, numbers of a row
  ParameterSpec weight = {};        // linear, embedding
  Compute compute = Compute::kInt;  // linear
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;  // linear: products of the backward
  Rounding gradient_rounding = Rounding::kStochastic;            // linear: of the gradients of int8 products
  bool gx_per_group = false;                                     // linear
  std::optional<QuantSpec> activation = {};   // quantize: of the codes; quantize_gradient: of the gradient
  DType activation_grad = dtypes::fp32;       // quantize: dtype of the gradient that leaves the quantizer, fp32 or bf16
  std::optional<ObserverSpec> observer = {};  // quantize: scales follow an observed range; none: found from each batch
  float learned_lr_factor = 1.0f;             // quantize: learned steps, clips and offsets
  std::optional<float> learned_weight_decay = {};
  double p = 0.5;                      // dropout
  float eps = 1e-5f, momentum = 0.1f;  // norms
};

using LayerFactory = std::function<std::shared_ptr<Module>(const LayerSpec& spec, int64_t in_features)>;
// Throws Error for an unknown kind (lists the names and the nearest) and for a spec that does not fit.
std::shared_ptr<Module> make_layer(const LayerSpec& spec, int64_t in_features);
std::vector<std::string> layer_names();
// Adds a layer kind from a user's program. A known name throws Error.
void register_layer(const std::string& name, LayerFactory factory);
// The layers of `specs` one after the other; features flow from `in_features`.
std::shared_ptr<Sequential> make_sequential(const std::vector<LayerSpec>& specs, int64_t in_features);

// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]); parameters weight [o,i] and bias [o]. Other ways to compute, and modes of
// the backward products: make_layer with kind "linear".
std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias = false);

}  // namespace bitgrad
