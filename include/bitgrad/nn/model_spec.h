// A model as data: the form of its input and a tree of layers. Stored in configurations, checkpoints and exports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/precision.h"

namespace bitgrad {

struct LayerSpec;
struct LayerOrigin;  // config/config.h

// A list of consecutive layers under a key of a container: "body", "shortcut", or "0", "1", ... for a list of lists.
struct LayerList {
  LayerList() = default;
  LayerList(std::string key, std::vector<LayerSpec> layers);
  std::string key;
  std::vector<LayerSpec> layers;
  friend bool operator==(const LayerList& a, const LayerList& b);
};

// Plain-data description of one layer. `attributes` holds the keys of its kind (layers.h); omitted keys take their
// defaults. Settings shared by low-bit layers of all kinds have fields of their own; a kind uses those that it
// declares.
struct LayerSpec {
  std::string kind = {};
  std::string name = {};  // among its siblings and in paths; empty: its index, 0, 1, ...
  Attributes attributes = {};
  std::vector<LayerList> lists = {};  // for containers

  ParameterSpec weight = {};                       // if LayerKind::weights
  ProductSpec product = {};                        // if LayerKind::product
  std::optional<ActivationQuant> activation = {};  // if LayerKind::quantizer is set: of the codes, or of the gradient
  std::shared_ptr<const LayerOrigin> origin = {};  // in a configuration; nullptr: the layer is from elsewhere
  friend bool operator==(const LayerSpec& a, const LayerSpec& b);  // without `origin`
};

inline LayerList::LayerList(std::string k, std::vector<LayerSpec> l) : key(std::move(k)), layers(std::move(l)) {}
inline bool operator==(const LayerList& a, const LayerList& b) { return a.key == b.key && a.layers == b.layers; }
inline bool operator==(const LayerSpec& a, const LayerSpec& b) {
  return a.kind == b.kind && a.name == b.name && a.attributes == b.attributes && a.lists == b.lists &&
         a.weight == b.weight && a.product == b.product && a.activation == b.activation;
}

struct ModelSpec {
  Form input = {};  // shape of a sample, dtype, and the dtype of values between layers (input.values, fp32 or bf16)
  std::vector<LayerSpec> layers = {};
};

// A low-rank adapter of a linear layer (nn/adapter.h).
struct AdapterSpec {
  int64_t rank = 8;      // 1 .. 65536; A is [rank, inputs], B is [outputs, rank], both fp32
  double alpha = 8;      // the adapter's output is scaled by alpha / rank
  double dropout = 0.0;  // in [0, 1), on the adapter's input, in training
  friend bool operator==(const AdapterSpec&, const AdapterSpec&) = default;
};

// Which layers get an adapter, and what else trains. Globs as in QuantRule.
struct AdapterRule {
  std::vector<std::string> layers = {"*"};
  AdapterSpec adapter = {};
  std::vector<std::string> train = {};  // layers or parameters that are not frozen
  friend bool operator==(const AdapterRule&, const AdapterRule&) = default;
};

}  // namespace bitgrad
