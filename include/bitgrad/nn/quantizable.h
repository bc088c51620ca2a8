// Quantizable: the slot of a layer whose product may be quantized, i.e. the weight and the input of linear(x, w),
// conv2d(x, w) or embedding(ids, w). Built-in layers and user modules create slots with Module::add_quantizable;
// prepare and convert (prepare.h) configure them. docs/numerics.md section 9.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/ops/product_modes.h"

namespace bitgrad {

class LowRankAdapter;
class Module;
namespace inference {
class Graph;
using Value = int32_t;
}  // namespace inference
class ActivationQuantizer;
struct AdapterSpec;
struct Conv2dOptions;
struct StepState;
struct Form;
class PlanRequests;

class Quantizable {
 public:
  enum class Kind : uint8_t { kLinear, kConv, kEmbedding };

  // Created by Module::add_quantizable; not meant to be constructed directly.
  Quantizable(Module& owner, std::string name, Kind kind, Parameter& weight, const LayerQuant& own);
  ~Quantizable();

  Kind kind() const { return kind_; }
  Parameter& weight() const { return weight_; }
  // Name of the weight parameter in its module.
  const std::string& name() const { return name_; }
  const Module& owner() const { return owner_; }
  // The configured precision, even while quantization is switched off.
  const LayerQuant& quant() const { return quant_; }
  const QuantMode& mode() const { return mode_; }
  // Whether the product currently runs quantized.
  bool on() const { return mode_.quantization != QuantSwitch::kOff; }
  // The slot that owns the weight and decides how it is quantized, if this slot is tied to another one; nullptr if it
  // owns its weight. A tied slot uses only the input part of a LayerQuant.
  const Quantizable* weight_owner() const { return owner_slot_; }
  // nullptr: the input is used as is.
  ActivationQuantizer* input_quantizer() const { return input_.get(); }

  // Changes the precision of weight and input. Weight values are kept: fp32 values become the master, a master becomes
  // the fp32 values. Setting an equal spec is a no-op. After initialize, new codes are made immediately, with the
  // random draws of the model's current step. Afterwards the layouts must be planned again and the optimizer attached
  // again. Throws Error if the scheme rejects the spec; nothing is changed then.
  void set(const LayerQuant& quant) { set(quant, mode_); }
  // Sets precision and mode together, so that values convert from the old precision to the new one in a single step.
  void set(const LayerQuant& quant, const QuantMode& mode);
  // Throws whatever `set` would throw, without changing anything. An embedding checks only the weight part of `quant`.
  void check(const LayerQuant& quant) const { check(quant, mode_); }
  void check(const LayerQuant& quant, const QuantMode& mode) const;
  // Throws Error when switching off a layer with compute integer_out, and when changing the mode of a converted layer.
  void set_mode(const QuantMode& mode);
  void check_mode(const QuantMode& mode) const;
  // Adds a low-rank adapter (nn/adapter.h) to the layer and freezes the weight. Call before initialize. Throws Error
  // for a slot that is not of kind kLinear or does not own its weight, for compute integer_out, and if there is an
  // adapter already.
  void adapt(const AdapterSpec& spec);
  // nullptr if there is none. Owned by the layer as child "adapter" (or "<name>_adapter").
  LowRankAdapter* adapter() const { return adapter_.get(); }
  void drop_adapter();

  // Irreversibly reduces the slot to its codes: drops the master, the weight's learned parts and the gradient. Compute
  // simulated becomes packed. A slot that is switched off becomes plain fp32.
  void convert();
  bool converted() const { return converted_; }

  // Returns the operand of the product: x passed through the input's quantizer, if there is one and x is not codes
  // already (made by the same quantizer, in one pass with the layer before: nn/layers/fusions.h).
  Var input(const Var& x);
  // y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]), including the input's quantizer, computed as quant().compute says.
  // `modes` applies to the backward products and is ignored (fp32) while quantization is off. Kind kLinear only.
  Var linear(const Var& x, const Var& bias = {}, const ProductModes& modes = {});
  // Returns the form of linear's output for an input of form `in`, and plans the layouts. For `requests` see
  // Module::plan. Throws Error if the input does not fit.
  Form plan_linear(const Form& in, PlanRequests& requests, bool bias = false, const ProductModes& modes = {});
  // The same for conv2d(x, w) (ops/spatial.h): x [n,h,w,c], weight [o, taps * c / groups]. Kind kConv only.
  Var conv2d(const Var& x, const Var& bias, const Conv2dOptions& options, const ProductModes& modes = {});
  Form plan_conv2d(const Form& in, PlanRequests& requests, const Conv2dOptions& options, bool bias = false,
                   const ProductModes& modes = {});

  // The weight as graphs of inference have it (nn/inference.h): on the host, without the layouts of kernels. Throws
  // Error if the slot has an adapter or its quantization is switched off.
  Tensor inference_weight() const;
  // Adds the nodes of linear (`options` nullptr) or conv2d to `graph` (nn/inference.h) and returns the output value.
  // `bias` may be nullptr. Throws what inference_weight throws.
  inference::Value lower(inference::Graph& graph, inference::Value x, const Parameter* bias,
                         const Conv2dOptions* options = nullptr);

 private:
  friend class Module;
  static constexpr std::string_view kWeight = "weight";
  std::shared_ptr<ActivationQuantizer> make_input(const LayerQuant& quant) const;
  LayerQuant checked(const LayerQuant& quant) const;
  // `options` is nullptr for linear.
  Var product(const Var& in, const Var& bias, const Conv2dOptions* options, const ProductModes& modes);
  Form plan_slot(const Form& in, PlanRequests& requests, const Conv2dOptions* options, bool bias,
                 const ProductModes& modes);
  void check_weight(const LayerQuant& quant) const;
  void check_integer(const LayerQuant& quant) const;
  void hold_weight();
  int64_t step() const;
  std::string child_name() const;
  std::string adapter_name() const;
  Var adapted(const Var& y, const Var& x);

  Module& owner_;
  std::string name_;
  Kind kind_;
  Parameter& weight_;
  const LayerQuant own_;  // from the layer's own spec
  LayerQuant quant_;
  QuantMode mode_;
  std::shared_ptr<ActivationQuantizer> input_;
  std::shared_ptr<LowRankAdapter> adapter_;
  bool converted_ = false;
  DType y_ = dtypes::fp32;  // dtype of the product's output, as planned
  bool causal_ = false;     // whether the planned model is causal
  int64_t features_ = 0;    // of the planned input; 0: not planned yet
  const Quantizable* owner_slot_ = nullptr;
};

}  // namespace bitgrad
