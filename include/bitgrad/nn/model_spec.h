// A model as data: the form of its input and a tree of layers. What configurations, checkpoints and exports hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/nn/quantizable.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"

namespace bitgrad {

struct LayerSpec;

// Layers one after the other, under a key of a container: "body", "shortcut", or 0, 1, ... for one list of several.
struct LayerList {
  LayerList() = default;
  LayerList(std::string key, std::vector<LayerSpec> layers);
  std::string key;
  std::vector<LayerSpec> layers;
};

// Plain data that describes one layer. `attributes` are the keys of its kind (layer_kind.h); keys that are left out
// have their defaults. What low-bit layers of every kind share has fields of its own: a kind reads those that it
// declares.
struct LayerSpec {
  std::string kind = {};
  std::string name = {};  // among its siblings, and in paths; empty: its place, 0, 1, ...
  Attributes attributes = {};
  std::vector<LayerList> lists = {};  // of a container

  ParameterSpec weight = {};  // LayerKind::weights
  // LayerKind::product. gx, gw: modes of the backward products; other than fp32 they need compute packed.
  Compute compute = Compute::kPacked;
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
  Rounding gradient_rounding = Rounding::kStochastic;  // of the gradients of int8 products
  bool gx_per_group = false;
  // LayerKind::quantizer
  std::optional<QuantSpec> activation = {};   // of the codes, or of the gradient
  DType activation_grad = dtypes::fp32;       // dtype of the gradient that leaves the quantizer, fp32 or bf16
  std::optional<ObserverSpec> observer = {};  // scales follow an observed range; none: found from each batch
  float learned_lr_factor = 1.0f;             // of learned steps, clips and offsets
  std::optional<float> learned_weight_decay = {};
};

inline LayerList::LayerList(std::string k, std::vector<LayerSpec> l) : key(std::move(k)), layers(std::move(l)) {}

struct ModelSpec {
  Form input = {};  // shape of a sample, dtype, and what values between layers are held in: input.values, fp32 or bf16
  std::vector<LayerSpec> layers = {};
};

}  // namespace bitgrad
