// Optimizers: move the masters from the gradients. docs/numerics.md section 6, in this order:
//   divide by the samples of the window; quantizer backward (straight-through); value clip; global-norm clip; decay;
//   update; latent clamp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad {

struct OptimizerSpec {
  std::string name = "sgd";           // a line of optimizers.inc, or a name given to register_optimizer
  float momentum = 0;                 // sgd
  bool nesterov = false;              // sgd
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw
  float eps = 1e-8f;                  // adam, adamw
  float weight_decay = 0;             // sgd, adam: added to the gradient; adamw: decoupled
  float clip_value = 0;               // 0: off. Gradients are clamped to [-clip_value, clip_value]
  float clip_norm = 0;                // 0: off. All gradients are scaled by clip_norm / norm when norm > clip_norm
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  explicit Optimizer(OptimizerSpec spec) : spec_(std::move(spec)) {}

  // Makes the state of these parameters; they must outlive the optimizer.
  void attach(const std::vector<Parameter*>& parameters);
  // One step at rate lr; gradients are sums over `samples` samples. Parameters without a gradient are left alone.
  // Gradients become zero. Throws Error(kNonFinite) that names the parameter when a gradient holds NaN or Inf; nothing
  // has moved then.
  void step(float lr, int64_t samples);

  const OptimizerSpec& spec() const { return spec_; }
  int64_t steps() const { return steps_; }
  // The global norm of the last step, before clipping (0 unless clip_norm is on).
  float last_norm() const { return last_norm_; }

  // Everything that a checkpoint holds beside the step count: "<parameter path>.<name>.<part>".
  struct StateTensor {
    std::string name;
    Tensor tensor;
  };
  std::vector<StateTensor> state() const;
  virtual void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  // Names of the fp32 state tensors of each parameter, such as {"m", "v"}.
  virtual std::vector<std::string_view> parts() const = 0;
  virtual void begin_step() {}
  // Moves rows of one master. All tensors have the same shape; g is finished (divided, clipped) and may be overwritten.
  virtual void update(const Tensor& master, const Tensor& g, const std::vector<Tensor>& state, float lr) = 0;

  OptimizerSpec spec_;
  int64_t steps_ = 0;

 private:
  struct Slot {
    Parameter* parameter;
    std::vector<Tensor> state;
  };
  void check_finite() const;
  float global_norm(int64_t samples);
  std::vector<Slot> slots_;
  float last_norm_ = 0;
};

std::vector<std::string> optimizer_names();
// Throws Error for an unknown name, or a value out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);
using OptimizerFactory = std::unique_ptr<Optimizer> (*)(const OptimizerSpec&);
void register_optimizer(const std::string& name, OptimizerFactory factory);

}  // namespace bitgrad
