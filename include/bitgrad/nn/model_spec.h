// A model as data: the form of its input and a tree of layers. Stored in configurations, checkpoints and exports.
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

// A list of consecutive layers under a key of a container: "body", "shortcut", or "0", "1", ... for a list of lists.
struct LayerList {
  LayerList() = default;
  LayerList(std::string key, std::vector<LayerSpec> layers);
  std::string key;
  std::vector<LayerSpec> layers;
};

// Plain-data description of one layer. `attributes` holds the keys of its kind (layer_kind.h); omitted keys take their
// defaults. Settings shared by low-bit layers of all kinds have fields of their own; a kind uses those that it
// declares.
struct LayerSpec {
  std::string kind = {};
  std::string name = {};  // among its siblings and in paths; empty: its index, 0, 1, ...
  Attributes attributes = {};
  std::vector<LayerList> lists = {};  // for containers

  ParameterSpec weight = {};  // if LayerKind::weights
  // If LayerKind::product. gx, gw: modes of the backward products; anything but fp32 requires compute packed.
  Compute compute = Compute::kPacked;
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;
  Rounding gradient_rounding = Rounding::kStochastic;  // for the gradients of int8 products
  bool gx_per_group = false;
  // If LayerKind::quantizer is set.
  std::optional<QuantSpec> activation = {};   // of the codes, or of the gradient
  DType activation_grad = dtypes::fp32;       // dtype of the gradient that the quantizer passes back, fp32 or bf16
  std::optional<ObserverSpec> observer = {};  // scales follow an observed range; nullopt: computed per batch
  float learned_lr_factor = 1.0f;             // for learned steps, clips and offsets
  std::optional<float> learned_weight_decay = {};
};

inline LayerList::LayerList(std::string k, std::vector<LayerSpec> l) : key(std::move(k)), layers(std::move(l)) {}

struct ModelSpec {
  Form input = {};  // shape of a sample, dtype, and the dtype of values between layers (input.values, fp32 or bf16)
  std::vector<LayerSpec> layers = {};
};

}  // namespace bitgrad
