// Layer kinds, and layers and models built from their descriptions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

// Layer kinds as data: name, keys (type, range, default, doc) and a factory. Each kind is one file of src/nn/layers/
// and one line of src/nn/layers/layers.inc; programs add kinds with register_layer. Configuration parsing, the
// reference page, error positions and the model record in files are all driven by this list.
//
// How a container's layer lists appear in configurations and in the paths of the layers below it.
struct LayerLists {
  enum class Kind : uint8_t {
    kNone,
    kInline,   // key `layers`, one list; its layers are the children 0, 1, ...
    kNamed,    // one list per entry of `keys`; each list is a child of that name
    kIndexed,  // key `layers`, a list of lists; each list is one of the children 0, 1, ...
    kRepeated  // key `layers`, one list that is instantiated once per child 0, 1, ...
  };
  Kind kind = Kind::kNone;
  std::vector<Key> keys = {};  // for kNamed; only name, standard ("!" or "") and doc are used
};

struct LayerKind {
  std::string name = {};
  std::string doc = {};
  std::vector<Key> keys = {};
  LayerLists lists = {};
  bool weights = false;  // has a quantizable weight: key `weights`, LayerSpec::weight
  bool product = false;  // multiplies by that weight: keys `compute` and `backward`
  enum class Quantizer : uint8_t {
    kNone,
    kActivations,  // its keys are those of quant.activations
    kGradients,
  };
  Quantizer quantizer = Quantizer::kNone;
  bool axes = false;    // uses axes of a sample other than the features; models without such layers take flat vectors
  bool ids = false;     // takes ids, int32 or int64
  bool causal = false;  // mixes the positions of a sample, each output row depending only on rows up to its own
  bool positions = false;  // adds rows of a table by the position in a sample
  bool bf16 = false;       // supports bf16 values (Form::values); a bf16 model rejects kinds that do not
  enum class Output : uint8_t {
    kScores,  // its output may be the output of the model
    kKeeps,   // may follow the layer that produces the output
    kNone,    // not allowed after it: would cut off or distort the output
  };
  Output output = Output::kScores;
  // Creates the layer from `spec`, which has a value for every key that has a default. The input form follows in
  // Module::plan.
  std::function<std::shared_ptr<Module>(const LayerSpec& spec)> make = {};
};

// Adds a kind from a user's program. Throws Error if the name is taken or invalid, if a key is malformed (e.g. a
// default out of range) or common to all kinds already, or if `make` is missing.
void register_layer(LayerKind kind);
// Returns nullptr for an unknown name. The pointer stays valid for the lifetime of the program.
const LayerKind* find_layer_kind(std::string_view name);
// In list order, followed by registered kinds in order of registration.
std::vector<const LayerKind*> layer_kinds();
// Sorted alphabetically.
std::vector<std::string> layer_names();

// Returns the kind of a spec. Throws Error for an unknown kind; the message lists the names and the nearest match.
const LayerKind& kind_of(const LayerSpec& spec);
// Returns the spec with the defaults of its kind filled in. Throws Error for unknown, missing or invalid attributes.
LayerSpec completed(const LayerSpec& spec);

class Fusions;  // src/nn/layers/fusions.h

// Children are named 0, 1, 2, ... unless given a name. Errors name the child (LayerError).
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<std::shared_ptr<Module>>& modules);
  void append(std::shared_ptr<Module> module, std::string name = {});
  Var forward(const Var& x) override;
  // In training, keeps only its input and runs forward again in backward (autograd/tape.h).
  void set_recompute(bool on) { recompute_ = on; }
  // Runs the first `count` modules.
  Var forward_first(size_t count, const Var& x);
  using Module::plan;
  Form plan(const Form& in, PlanRequests& requests) override;
  PlanRequests serve(const PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return "sequence"; }
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) { return *modules_.at(i); }
  // Name of child i.
  const std::string& name(size_t i) const { return names_.at(i); }
  // It is the whole model, whose results are codes under compute: integer (operand "output_codes").
  void set_whole_model() { whole_model_ = true; }
  std::vector<std::string> operand_names() const override;

 private:
  PlanRequests serve_before(size_t i, PlanRequests requests);
  size_t run_fused(size_t i, size_t end, Var& y);
  std::vector<std::shared_ptr<Module>> modules_;
  std::vector<std::string> names_;
  std::shared_ptr<const Fusions> fusions_;  // set by plan
  bool recompute_ = false;
  bool whole_model_ = false;
};

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
