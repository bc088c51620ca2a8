// Module: owns named parameters, buffers and children, and defines forward(Var) -> Var. Contains no backward, device or
// config code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/nn/quantizable.h"
#include "bitgrad/nn/state.h"

namespace bitgrad {

struct LayerSpec;
namespace inference {
class Graph;
using Value = int32_t;
}  // namespace inference

// The path that a Learner gives the model; the root of all layer paths.
inline constexpr const char* kModelRoot = "layers";

class Module {
 public:
  virtual ~Module() = default;
  virtual Var forward(const Var& x) = 0;
  // Runs forward and reports to StepState::on_forward. Use this to call another module.
  Var operator()(const Var& x);
  // Returns the form of forward's output for an input of form `in`; throws Error if the input does not fit. Layers with
  // packed weights plan the layouts that their kernels read. The module adds what it wants from the producer of its
  // input to `requests`; the caller passes these on to that producer's serve().
  virtual Form plan(const Form& in, PlanRequests& requests) = 0;
  // Plans a whole model, whose input has no producer: requests are dropped. Checks causal models (check_causal).
  Form plan(const Form& in);
  // Calls plan and records input_form and output_form. Use this to plan another module.
  Form planned(const Form& in, PlanRequests& requests);
  // Forms of the last plan for training, or of the last plan if there was none for training. nullopt if this module's
  // plan was not called through `planned`.
  const std::optional<Form>& input_form() const { return input_form_; }
  const std::optional<Form>& output_form() const { return output_form_; }
  // Whether this module, or one below it, mixes the positions of a sample causally (LayerKind::causal).
  bool causal();
  // Throws LayerError if a causal model has a layer whose output rows depend on other rows of the batch (scales or
  // statistics computed over the batch). Does nothing for other models. Called by plan of a whole model.
  void check_causal();
  // Multiply-accumulates per sample for the given forms. The default counts the products of the module's own weights;
  // override it for modules that multiply anything else. Children are counted separately.
  virtual int64_t macs(const Form& in, const Form& out) const;
  // Adds nodes for what forward computes from x in evaluation to `graph` (nn/inference.h) and returns the output value.
  // The model must be initialized and planned. The default throws Error: this kind has no lowering.
  virtual inference::Value lower(inference::Graph& graph, inference::Value x);
  // Receives what readers request of this module's output, after all modules have planned. Returns the part that its
  // own producer must provide: all of it if the output is the input itself, otherwise nothing (the default).
  virtual PlanRequests serve(const PlanRequests& requests);

  // Depth first, own parameters before those of children; learned parts follow their parameter.
  std::vector<Parameter*> parameters();
  // Without learned parts, each with its path below `root`; also works before initialize.
  std::vector<std::pair<std::string, Parameter*>> parameters_at(const std::string& root);
  // This module and all below it, depth first, each with its path, `root` being that of this one.
  std::vector<std::pair<std::string, Module*>> modules_at(const std::string& root);
  struct Buffer {
    std::string path = {};
    Tensor tensor = {};
  };
  std::vector<Buffer> buffers();

  // Own slots before those of children, in order of creation.
  std::vector<Quantizable*> quantizables();
  // The same with layer paths: the module's path for a weight named "weight", else "<module>.<weight>". `root` is the
  // path of this module while initialize has not set one.
  struct QuantizableAt {
    std::string layer = {};
    Quantizable* slot = nullptr;
  };
  std::vector<QuantizableAt> quantizables_at(const std::string& root);
  // The name of the kind in layers.inc, e.g. "linear"; used in tables.
  virtual std::string_view kind() const { return "module"; }
  // Children that quantize what the layer reads beside its slots, for compute: integer: the sides of a sum, the input
  // of an average. `quant`: nullopt removes them. Called by prepare.
  void quantize_operands(const std::optional<ActivationQuant>& quant, const QuantMode& mode);
  virtual std::vector<std::string> operand_names() const { return {}; }
  // Sets the quantization mode of this module alone (set_quant_mode in prepare.h visits children itself). The default
  // switches the module's own quantizables.
  virtual void set_quant_mode(const QuantMode& mode);
  // Holds this module and everything below it as it is: parameters, running statistics, observed ranges. Call before
  // initialize; children that prepare adds later are frozen too.
  void freeze();
  bool frozen() const { return frozen_; }
  // Direct children, in order.
  std::vector<Module*> children();
  // The descendant with this relative path, such as "3.body.1"; nullptr if there is none.
  Module* find(std::string_view names);
  // Calls connect on this module and everything below it; `root` is the whole model.
  void connect_all(Module& root);
  // The spec it was made from; nullptr unless made by make_layer.
  const LayerSpec* spec() const { return spec_.get(); }
  void set_spec(std::shared_ptr<const LayerSpec> spec) { spec_ = std::move(spec); }

  // Assigns paths below `path`, draws the masters and makes the first values; leaves them unset if state.read_only.
  // Throws Error if two paths (of modules or parameters) are equal or collide in CRC32C.
  void initialize(const std::string& path, StepState& state);
  // Whether initialize was called.
  bool initialized() const { return state_ != nullptr; }
  // Repeats initialize's check of the paths, after modules were added or removed.
  void check_paths() const;
  const std::string& path() const { return path_; }

 protected:
  Parameter& add_parameter(const std::string& name, Shape shape, ParameterSpec spec);
  // The shape follows from the input form: plan must call the parameter's describe.
  Parameter& add_parameter(const std::string& name, ParameterSpec spec);
  // Adds state that is saved and resumed but not trained: fp32 filled with `number`, or a tensor made by the module
  // (dense, canonical, without scales; any dtype that checkpoints hold: fp32, bf16, int8, uint8, int32, int64). The
  // returned tensor shares its bytes with the buffer.
  Tensor add_buffer(const std::string& name, const Shape& shape, double number);
  Tensor add_buffer(const std::string& name, const Tensor& tensor);
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  // Adds a quantizable weight [outputs, inputs] (embedding: [ids, features]) as parameter `name`. The input's quantizer
  // is a child, "input" for the weight "weight", otherwise "<name>_input". spec.quant and `compute` apply until prepare
  // changes them.
  Quantizable& add_quantizable(const std::string& name, Shape shape, const ParameterSpec& spec,
                               Quantizable::Kind kind = Quantizable::Kind::kLinear, Compute compute = Compute::kPacked);
  // The shape follows from the input form.
  Quantizable& add_quantizable(const std::string& name, const ParameterSpec& spec,
                               Quantizable::Kind kind = Quantizable::Kind::kLinear, Compute compute = Compute::kPacked);
  // Adds a slot that multiplies by another slot's weight, e.g. for tied embeddings. `owner` decides how the weight is
  // quantized.
  Quantizable& add_tied(const std::string& name, Quantizable& owner, Compute compute = Compute::kPacked);
  // Allocates whatever needs memory, such as buffers. Called by initialize; the module's parameters are allocated by
  // then.
  virtual void allocate() {}
  // Records an integer that plan determined for a key of the spec, such as the row count of a table, so that it is
  // saved in model files.
  void record_key(const std::string& key, int64_t value);
  // Throws Error if output rows depend on other rows of the batch. Called for every module of a causal model.
  virtual void check_rows() const {}
  // Called once after a tree of layers is made and before it is planned, to look up layers that this one refers to.
  virtual void connect(Module&) {}
  // What the layer reads as operand `name`: x through its quantizer and back to values; x itself if there is none.
  Var operand(const std::string& name, const Var& x) const;
  Form plan_operand(const std::string& name, const Form& in) const;
  inference::Value lower_operand(const std::string& name, inference::Graph& graph, inference::Value x) const;
  bool quantizes_operands() const { return operands_; }
  // The current step state. Throws Error before initialize.
  const StepState& state() const;
  // Where the rows of the batch lie in their sequences; before initialize: at position 0.
  const SequenceState& sequence() const;
  StepState& mutable_state() const;

 private:
  friend class Quantizable;
  void replace_child(const std::string& name, std::shared_ptr<Module> child);  // nullptr: removes the child
  void name_all(const std::string& path, StepState& state);
  void check_all_rows();
  void collect_paths(std::vector<std::string>& out) const;  // of itself, its parameters and its children
  template <typename T>
  struct Named {
    std::string name;
    T item;
  };
  Quantizable& add_slot(const std::string& name, Parameter& weight, const ParameterSpec& spec, Quantizable::Kind kind,
                        Compute compute);
  std::string path_;
  std::shared_ptr<const LayerSpec> spec_;
  StepState* state_ = nullptr;
  bool frozen_ = false;
  bool operands_ = false;  // whether there are quantizers of operands
  std::optional<Form> input_form_, output_form_;
  std::vector<Named<std::unique_ptr<Parameter>>> parameters_;
  std::vector<Named<Tensor>> buffers_;
  std::vector<Named<std::shared_ptr<Module>>> children_;
  std::vector<std::unique_ptr<Quantizable>> quantizables_;  // refer to parameters_, so they are destroyed first
};

// An error of a child, with the relative path of the module that failed, such as "3.body.1". what() is "layer 3.body.1:
// " followed by the message.
class LayerError : public Error {
 public:
  LayerError(std::string layer, std::string message, ErrorCode code)
      : Error("layer " + layer + ": " + message, code), layer_(std::move(layer)), message_(std::move(message)) {}
  const std::string& layer() const noexcept { return layer_; }
  // The message without the path.
  const std::string& message() const noexcept { return message_; }

 private:
  std::string layer_, message_;
};
// Rethrows the exception being handled with `name` prepended to its path. Exception types defined by a program pass
// through unchanged.
[[noreturn]] void rethrow_in_layer(const std::string& name);
// Runs `run` for the child `name`, so that its errors carry the path.
template <typename F>
auto in_layer(const std::string& name, F&& run) {
  try {
    return run();
  } catch (const Error&) {
    rethrow_in_layer(name);
  }
}

// Layers that stay as they are while others train: weights, biases, norms, their running statistics, learned steps and
// observed ranges.

// Freezes the layers whose full path matches one of the globs (QuantRule), with everything below them, and the
// parameters whose path does. Call before initialize. Throws Error for a glob that matches nothing that could change,
// and for a layer that shares the weight of one that still trains.
void freeze_layers(Module& model, const std::vector<std::string>& globs, const std::string& root = kModelRoot);
// Parameters that train although `weights: {frozen: true}` holds the weight of their layer, such as its bias.
std::vector<std::string> trained_beside_frozen(Module& model, const std::string& root = kModelRoot);

}  // namespace bitgrad
