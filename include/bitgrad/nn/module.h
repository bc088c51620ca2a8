// Module: names parameters, buffers and children; forward(Var) -> Var. No backward, no device code, no config parsing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/autograd/var.h"
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

// The path under which a Learner names the model, and so the root of the paths of its layers.
inline constexpr const char* kModelRoot = "layers";

class Module {
 public:
  virtual ~Module() = default;
  virtual Var forward(const Var& x) = 0;
  // forward, and StepState::on_forward is told: how a module runs another one.
  Var operator()(const Var& x);
  // forward(previous.forward(x)) without the output of `previous` in memory, where the two can be fused; where they
  // cannot, an undefined Var and no side effects. Called in training, or without a tape, by a parent that passes the
  // output of `previous` to this module alone and reports it to no hook.
  virtual Var forward_fused(Module& previous, const Var& x);
  // The same of three: forward(middle.forward(first.forward(x))), where all three can be fused.
  virtual Var forward_fused(Module& first, Module& middle, const Var& x);
  // What forward gives for an input of this form; throws Error when it does not fit. Layers that own packed weights
  // plan the layouts that their kernels read here. `requests` gets what this module wants of the one that makes its
  // input; whoever knows that one hands it to its serve().
  virtual Form plan(const Form& in, PlanRequests& requests) = 0;
  // The same where nobody can serve the requests: of a whole model.
  Form plan(const Form& in);
  // plan, and input_form and output_form are set: how a module plans another one.
  Form planned(const Form& in, PlanRequests& requests);
  // Of the last plan, of the last one for training if there was one; none: a module that does not go through planned
  // ran this one's plan.
  const std::optional<Form>& input_form() const { return input_form_; }
  const std::optional<Form>& output_form() const { return output_form_; }
  // Whether it, or a module below it, mixes the positions of a sample causally (LayerKind::causal).
  bool causal();
  // Throws LayerError where a causal model has a layer whose output for a row depends on the other rows of a batch:
  // scales found from all of it, its statistics. plan of a whole model calls it. Models that are not causal pass.
  void check_causal();
  // Multiplications of one sample's forward pass, of these forms: those of the own weights' products; a module that
  // multiplies anything else adds them. Children count for themselves.
  virtual int64_t macs(const Form& in, const Form& out) const;
  // States what forward computes of x in evaluation: adds nodes to `graph` (nn/inference.h) and returns the value of
  // its output. Of an initialized, planned model. The default throws Error: the kind says nothing of it.
  virtual inference::Value lower(inference::Graph& graph, inference::Value x);
  // What readers want of this module's output, after all have planned. Gives what it passes on to its own input:
  // everything where the output is the input itself; else nothing.
  virtual PlanRequests serve(const PlanRequests& requests);

  // Depth-first, own before children; the learned parts of a parameter follow it.
  std::vector<Parameter*> parameters();
  // Without learned parts, with the paths that they have below `root`: before initialize too.
  std::vector<std::pair<std::string, Parameter*>> parameters_at(const std::string& root);
  struct Buffer {
    std::string path = {};
    Tensor tensor = {};
  };
  std::vector<Buffer> buffers();

  // Own before those of children, in order of creation.
  std::vector<Quantizable*> quantizables();
  // The same with the paths of their layers: that of the module for the weight "weight", else "<module>.<weight>".
  // `root` stands for the path of this module before initialize has named it.
  struct QuantizableAt {
    std::string layer = {};
    Quantizable* slot = nullptr;
  };
  std::vector<QuantizableAt> quantizables_at(const std::string& root);
  // Its line of layers.inc, "linear", "quantize" ...: for tables.
  virtual std::string_view kind() const { return "module"; }
  // Switches of quantization (prepare.h, set_quant_mode): of its own; the default switches the quantizables. Children
  // are told apart.
  virtual void set_quant_mode(const QuantMode& mode);
  // Direct children, in order.
  std::vector<Module*> children();
  // The module below this one with these names, such as "3.body.1"; nullptr: none.
  Module* find(std::string_view names);
  // connect of this module and all below it; `root` is the whole model.
  void connect_all(Module& root);
  // What it was made of, where make_layer made it; nullptr otherwise.
  const LayerSpec* spec() const { return spec_.get(); }
  void set_spec(std::shared_ptr<const LayerSpec> spec) { spec_ = std::move(spec); }

  // Names everything below `path`, draws the masters, makes the first values. Throws Error when two paths (of
  // modules or parameters) are equal or collide in CRC32C.
  void initialize(const std::string& path, StepState& state);
  // Whether it was called.
  bool initialized() const { return state_ != nullptr; }
  // The same Error, after modules came and went.
  void check_paths() const;
  const std::string& path() const { return path_; }

 protected:
  Parameter& add_parameter(const std::string& name, Shape shape, ParameterSpec spec);
  // One whose shape follows from the form of the input: plan calls its describe.
  Parameter& add_parameter(const std::string& name, ParameterSpec spec);
  // State that is saved and resumed but not trained: fp32 filled with a number, or a tensor that the module made (any
  // dtype that a checkpoint holds: fp32, bf16, int8, uint8, int32, int64). The bytes are shared.
  Tensor add_buffer(const std::string& name, const Shape& shape, double number);
  Tensor add_buffer(const std::string& name, const Tensor& tensor);
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  // A weight [outputs, inputs] (embedding: [ids, features]) that may be quantized, as parameter `name`. Its input's
  // quantizer is a child: "input" for the weight "weight", else "<name>_input". spec.quant and `own` say how the layer
  // is held until prepare says otherwise.
  Quantizable& add_quantizable(const std::string& name, Shape shape, const ParameterSpec& spec,
                               Quantizable::Kind kind = Quantizable::Kind::kLinear, Compute compute = Compute::kPacked);
  // One whose shape follows from the form of the input.
  Quantizable& add_quantizable(const std::string& name, const ParameterSpec& spec,
                               Quantizable::Kind kind = Quantizable::Kind::kLinear, Compute compute = Compute::kPacked);
  // A slot of its own on the weight of another one, which owns it and says how it is quantized (tied embeddings).
  Quantizable& add_tied(const std::string& name, Quantizable& owner, Compute compute = Compute::kPacked);
  // Makes what needs memory, such as buffers, when the module is initialized: its parameters have theirs.
  virtual void allocate() {}
  // A whole number that plan found for a key of the spec, such as the rows of a table: files of the model hold it.
  void record_key(const std::string& key, int64_t value);
  // Throws Error where what it gives for a row depends on other rows of a batch. Called for what is in a causal model.
  virtual void check_rows() const {}
  // Called once when a tree of layers is made, before it is planned: looks up layers that this one refers to.
  virtual void connect(Module&) {}
  // The step that the model is in; set by initialize.
  const StepState& state() const;
  // Where the rows of a batch lie in their sequences; before initialize: at the begin.
  const SequenceState& sequence() const;
  StepState& mutable_state() const;

 private:
  friend class Quantizable;
  void replace_child(const std::string& name, std::shared_ptr<Module> child);  // nullptr: takes it away
  void name_all(const std::string& path, StepState& state);
  void check_all_rows();
  void collect_paths(std::vector<std::string>& out) const;  // own, parameters', children's
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
  std::optional<Form> input_form_, output_form_;
  std::vector<Named<std::unique_ptr<Parameter>>> parameters_;
  std::vector<Named<Tensor>> buffers_;
  std::vector<Named<std::shared_ptr<Module>>> children_;
  std::vector<std::unique_ptr<Quantizable>> quantizables_;  // of parameters_, so they go first
};

// What a child throws, with its place: the names from the module that was asked down to the one that refuses, such as
// "3.body.1". what() is "layer 3.body.1: " and the message.
class LayerError : public Error {
 public:
  LayerError(std::string layer, std::string message, ErrorCode code)
      : Error("layer " + layer + ": " + message, code), layer_(std::move(layer)), message_(std::move(message)) {}
  const std::string& layer() const noexcept { return layer_; }
  // Without the place.
  const std::string& message() const noexcept { return message_; }

 private:
  std::string layer_, message_;
};
// Throws what is being handled with `name` before its place. Types of errors of a program's own pass as they are.
[[noreturn]] void rethrow_in_layer(const std::string& name);
// Runs `run` for the child `name`: its errors carry the place.
template <typename F>
auto in_layer(const std::string& name, F&& run) {
  try {
    return run();
  } catch (const Error&) {
    rethrow_in_layer(name);
  }
}

}  // namespace bitgrad
