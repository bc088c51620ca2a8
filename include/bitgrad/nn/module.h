// Module: names parameters, buffers and children; forward(Var) -> Var. No backward, no device code, no config parsing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/autograd/var.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/nn/quantizable.h"
#include "bitgrad/nn/state.h"

namespace bitgrad {

// The path under which a Learner names the model, and so the root of the paths of its layers.
inline constexpr const char* kModelRoot = "layers";

// What flows between modules, known before any number does: [rows, features] of a dtype, and how it is scaled.
struct TensorMeta {
  int64_t rows = 0, features = 0;  // rows 0: only the form is asked for, no layout is planned
  DType dtype = dtypes::fp32;
  std::optional<Granularity> granularity = {};  // of its scales; none: no scales
  bool zero_point = false;
  bool offset = false;   // a real offset
  bool training = true;  // dropout changes dtypes in training only
  bool grad = false;     // something before it trains, so that a gradient is wanted
  // Of codes whose quantizer can write them in layout `transposed` too: set true by who reads them so in training.
  std::shared_ptr<bool> turned = {};
};

class Module {
 public:
  virtual ~Module() = default;
  virtual Var forward(const Var& x) = 0;
  // forward, and StepState::on_forward is told: how a module runs another one.
  Var operator()(const Var& x);
  // forward(before.forward(x)) without before's output in memory, where the two can do that; an undefined Var where
  // they cannot, and nothing has happened. Asked in evaluation without a tape, by a parent that gives what `before`
  // makes to this module alone and to nobody who looks on.
  virtual Var forward_behind(Module& before, const Var& x);
  // What forward gives for an input of this form; throws Error when it does not fit. Layers that own packed weights ask
  // here for the layouts that their kernels read.
  virtual TensorMeta plan(const TensorMeta& in) = 0;

  // Depth-first, own before children; the learned parts of a parameter follow it.
  std::vector<Parameter*> parameters();
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
  // State that is saved and resumed but not trained: fp32 filled with a number, or a tensor that the module made (any
  // dtype that a checkpoint holds: fp32, bf16, int8, uint8, int32, int64). The bytes are shared.
  Tensor add_buffer(const std::string& name, const Shape& shape, double number);
  Tensor add_buffer(const std::string& name, const Tensor& tensor);
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  // A weight [outputs, inputs] (embedding: [ids, features]) that may be quantized, as parameter `name`. Its input's
  // quantizer is a child: "input" for the weight "weight", else "<name>_input". spec.quant and `own` say how the layer
  // is held until prepare says otherwise.
  Quantizable& add_quantizable(const std::string& name, Shape shape, const ParameterSpec& spec,
                               Quantizable::Kind kind = Quantizable::Kind::kLinear, Compute compute = Compute::kInt);
  // The step that the model is in; set by initialize.
  const StepState& state() const;
  StepState& mutable_state() const;

 private:
  friend class Quantizable;
  void replace_child(const std::string& name, std::shared_ptr<Module> child);  // nullptr: takes it away
  void name_all(const std::string& path, StepState& state);
  void collect_paths(std::vector<std::string>& out) const;  // own, parameters', children's
  template <typename T>
  struct Named {
    std::string name;
    T item;
  };
  std::string path_;
  StepState* state_ = nullptr;
  std::vector<Named<std::unique_ptr<Parameter>>> parameters_;
  std::vector<Named<Tensor>> buffers_;
  std::vector<Named<std::shared_ptr<Module>>> children_;
  std::vector<std::unique_ptr<Quantizable>> quantizables_;  // of parameters_, so they go first
};

// Children one after the other, named 0, 1, 2 ... Errors of forward and plan start with "layer <index>: ".
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<std::shared_ptr<Module>>& modules);
  void append(std::shared_ptr<Module> module);
  Var forward(const Var& x) override;
  TensorMeta plan(const TensorMeta& in) override;
  size_t size() const { return modules_.size(); }
  Module& operator[](size_t i) { return *modules_.at(i); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace bitgrad
