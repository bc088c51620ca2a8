// Layer kinds as data: a name, the keys with their types, ranges, defaults and docs, and how a layer is made of them.
// One kind is one file of src/nn/layers/ and one line of src/nn/layers/layers.inc; programs add theirs with
// register_layer. Configurations, their reference page, their error marks and files of models follow from this list.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

using LayerKey = Key;

// What a container's lists of layers are called in paths below it, and in configurations.
struct LayerLists {
  enum class Kind : uint8_t {
    kNone,
    kInline,   // key `layers`, a list of layers: they are the children 0, 1, ...
    kNamed,    // `keys`: a list of layers each; a child of that name each
    kIndexed,  // key `layers`, a list of lists of layers: the children 0, 1, ...
    kRepeated  // key `layers`, a list of layers that is made anew for each of the children 0, 1, ...
  };
  Kind kind = Kind::kNone;
  std::vector<LayerKey> keys = {};  // of kNamed: name, standard ("!" or "") and doc are read
};

struct LayerKind {
  std::string name = {};
  std::string doc = {};
  std::vector<LayerKey> keys = {};
  LayerLists lists = {};
  bool weights = false;  // has a weight that a quantizer may hold: key `weights`, LayerSpec::weight
  bool product = false;  // multiplies by it: keys `compute` and `backward`
  enum class Quantizer : uint8_t {
    kNone,
    kActivations,  // its keys are those of quant.activations
    kGradients,
  };
  Quantizer quantizer = Quantizer::kNone;
  bool axes = false;    // looks at more of a sample than its features; a model without such layers takes vectors
  bool ids = false;     // takes ids, int32 or int64
  bool causal = false;  // mixes the positions of a sample: a row of its output depends on rows up to its own
  bool bf16 = false;    // reads and makes bf16 values (Form::values): models whose values are bf16 refuse other kinds
  enum class Output : uint8_t {
    kScores,  // what it gives may be the output of a model
    kKeeps,   // it may follow what gives the output
    kNone,    // it would cut off or disturb the output
  };
  Output output = Output::kScores;
  // Makes the layer; its form of input comes with Module::plan. `spec` has a value for every key that has a default.
  std::function<std::shared_ptr<Module>(const LayerSpec& spec)> make = {};
};

// Adds a kind from a user's program. Throws Error for a known or bad name, keys that do not read (a default out of its
// range) or that every kind has already, and without `make`.
void register_layer(LayerKind kind);
// nullptr: unknown. The pointer stays valid until the program ends.
const LayerKind* find_layer_kind(std::string_view name);
// In the order of the list, then of registration.
std::vector<const LayerKind*> layer_kinds();
// Sorted.
std::vector<std::string> layer_names();

// The kind of a spec. Throws Error for an unknown kind (lists the names and the nearest).
const LayerKind& kind_of(const LayerSpec& spec);
// The spec with the defaults of its kind. Throws Error for unknown, missing or wrong attributes.
LayerSpec completed(const LayerSpec& spec);

}  // namespace bitgrad
