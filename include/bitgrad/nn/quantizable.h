// Quantizable: the place in a layer whose product may be quantized: the weight and the input of linear(x, w), conv2d(x,
// w) or embedding(ids, w). Layers and users' modules alike make one with Module::add_quantizable; prepare and convert
// (prepare.h) fill it. docs/numerics.md section 9.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/ops/conv.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/observer.h"

namespace bitgrad {

class LowRankAdapter;
class Module;
namespace inference {
class Graph;
using Value = int32_t;
}  // namespace inference
class ActivationQuantizer;
struct AdapterSpec;
struct StepState;
struct Form;
class PlanRequests;

// How a linear or convolutional layer computes its forward product. docs/numerics.md section 5.
enum class Compute : uint8_t {
  kPacked,      // on the packed operands; float out (the default)
  kSimulated,   // the float simulation: operands are dequantized first
  kIntegerOut,  // as kPacked, but the result stays int32 with its scale
};
std::string_view compute_name(Compute compute);  // "packed", "simulated", "integer_out"

// How one layer is held and computed. Plain data; what a recipe names and a rule gives.
struct LayerQuant {
  std::string recipe = "none";                // the name it came from, for people: "8da4w", "custom"
  std::optional<QuantSpec> weight = {};       // none: fp32
  std::optional<QuantSpec> input = {};        // of what the layer multiplies; none: as it comes. Not for embeddings
  std::optional<ObserverSpec> observer = {};  // of the input; none: scales are found from each batch
  Compute compute = Compute::kPacked;
  // How the weight trains; none: as the layer's own spec says.
  std::optional<MasterKind> master = {};
  std::optional<DType> grad = {};
  std::optional<float> latent_clamp = {};
  DType input_grad = dtypes::fp32;  // dtype of the gradient that leaves the input's quantizer, fp32 or bf16
  float learned_lr_factor = 1.0f;   // of learned steps, clips and offsets, of weight and input
  std::optional<float> learned_weight_decay = {};
  friend bool operator==(const LayerQuant&, const LayerQuant&) = default;
};

// Switches of quantization while a model trains.
enum class QuantSwitch : uint8_t {
  kOn,
  kOff,     // weights are their fp32 values and inputs pass; observers go on if they are on
  kFrozen,  // scales stay as they are, of weights, learned parts and observed ranges; codes still follow the masters
};
std::string_view quant_switch_name(QuantSwitch on);  // "on", "off", "frozen"
struct QuantMode {
  QuantSwitch quantization = QuantSwitch::kOn;
  bool observers = true;  // false: observed ranges stay as they are
  friend bool operator==(const QuantMode&, const QuantMode&) = default;
};

class Quantizable {
 public:
  enum class Kind : uint8_t { kLinear, kConv, kEmbedding };

  // Use Module::add_quantizable.
  Quantizable(Module& owner, std::string name, Kind kind, Parameter& weight, const LayerQuant& own);
  ~Quantizable();

  Kind kind() const { return kind_; }
  Parameter& weight() const { return weight_; }
  // The parameter's name in its module.
  const std::string& name() const { return name_; }
  const Module& owner() const { return owner_; }
  // As given, also while it is switched off.
  const LayerQuant& quant() const { return quant_; }
  const QuantMode& mode() const { return mode_; }
  // Whether the product runs quantized now.
  bool on() const { return mode_.quantization != QuantSwitch::kOff; }
  // Whose weight this slot multiplies by, and who says how it is quantized; nullptr: it is its own. Such a slot takes
  // what a LayerQuant says of the input alone.
  const Quantizable* weight_owner() const { return owner_slot_; }
  // nullptr: the input is taken as it comes.
  ActivationQuantizer* input_quantizer() const { return input_.get(); }

  // Changes the precision of the weight and of the input. Values of the weight stay: fp32 ones become the master, a
  // master becomes fp32 ones. A spec that is equal to the one before changes nothing. After initialize, codes are made
  // immediately (draws of the step that the model is in). Layouts must be planned again, and the optimizer attached
  // again. Throws Error when a scheme refuses, before anything is changed.
  void set(const LayerQuant& quant) { set(quant, mode_); }
  // Both together: values go from the current precision to the new one in one step.
  void set(const LayerQuant& quant, const QuantMode& mode);
  // What set would throw. An embedding takes the weight's part of `quant` alone.
  void check(const LayerQuant& quant) const { check(quant, mode_); }
  void check(const LayerQuant& quant, const QuantMode& mode) const;
  // Throws Error for a layer of compute integer_out that is switched off, and for a converted one.
  void set_mode(const QuantMode& mode);
  void check_mode(const QuantMode& mode) const;
  // Gives the layer a low-rank adapter (nn/adapter.h), before initialize; the weight is frozen. Throws Error for a slot
  // that is not kind kLinear or not the owner of its weight, for compute integer_out, and for a second adapter.
  void adapt(const AdapterSpec& spec);
  // nullptr: none. Owned by the layer, its child "adapter" ("<name>_adapter").
  LowRankAdapter* adapter() const { return adapter_.get(); }
  void drop_adapter();

  // Codes only, for good: no master, no learned parts of the weight, no gradient; compute simulated becomes packed.
  void convert();
  bool converted() const { return converted_; }

  // x as the product takes it: through the input's quantizer, if there is one.
  Var input(const Var& x);
  // y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]) as quant().compute says, input quantizer included. `modes`: of the
  // backward products; fp32 while switched off. Kind kLinear.
  Var linear(const Var& x, const Var& bias = {}, const ProductModes& modes = {});
  // The same fused with the module before it (Module::forward_fused): x is the input of `previous`. Undefined, without
  // side effects, unless the input's quantizer can be fused with it.
  Var linear_fused(Module& previous, const Var& x, const Var& bias = {}, const ProductModes& modes = {});
  // What linear gives for an input of this form; plans the layouts. `requests`: Module::plan. Throws Error when it does
  // not fit.
  Form plan_linear(const Form& in, PlanRequests& requests, bool bias = false, const ProductModes& modes = {});
  // The same for conv2d(x, w) (ops/conv.h): x [n,h,w,c]; the weight is [o, taps * c / groups]. Kind kConv.
  Var conv2d(const Var& x, const Var& bias, const Conv2dOptions& options, const ProductModes& modes = {});
  Var conv2d_fused(Module& previous, const Var& x, const Var& bias, const Conv2dOptions& options,
                   const ProductModes& modes = {});
  Form plan_conv2d(const Form& in, PlanRequests& requests, const Conv2dOptions& options, bool bias = false,
                   const ProductModes& modes = {});

  // What linear (options: nullptr) or conv2d computes of x, as nodes of `graph` (nn/inference.h). bias: nullptr, none.
  // Throws Error for adapters and for quantization that is switched off.
  inference::Value lower(inference::Graph& graph, inference::Value x, const Parameter* bias,
                         const Conv2dOptions* options = nullptr);

 private:
  friend class Module;
  static constexpr std::string_view kWeight = "weight";
  std::shared_ptr<ActivationQuantizer> make_input(const LayerQuant& quant) const;
  LayerQuant checked(const LayerQuant& quant) const;
  // options: nullptr for linear.
  Var product(const Var& in, const Var& bias, const Conv2dOptions* options, const ProductModes& modes);
  Form plan_product(const Form& in, PlanRequests& requests, const Conv2dOptions* options, bool bias,
                    const ProductModes& modes);
  void check_weight(const LayerQuant& quant) const;
  void hold_weight();
  int64_t step() const;
  std::string child_name() const;
  std::string adapter_name() const;
  Var adapted(const Var& y, const Var& x);

  Module& owner_;
  std::string name_;
  Kind kind_;
  Parameter& weight_;
  const LayerQuant own_;  // what the layer's own spec says
  LayerQuant quant_;
  QuantMode mode_;
  std::shared_ptr<ActivationQuantizer> input_;
  std::shared_ptr<LowRankAdapter> adapter_;
  bool converted_ = false;
  DType y_ = dtypes::fp32;  // of what the product gives, as planned
  bool causal_ = false;     // of the model, as planned
  int64_t features_ = 0;    // of its input, as planned; 0: not yet
  const Quantizable* owner_slot_ = nullptr;
};

}  // namespace bitgrad
