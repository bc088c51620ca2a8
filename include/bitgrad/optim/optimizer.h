// The optimizer: one step of all parameters from their gradients. docs/numerics.md section 6, in this order:
//   divide by the samples of the window; quantizer backward (straight-through, gradients of learned parts); value clip;
//   global-norm clip; decay; update; latent clamp and floor.
// Masters of fewer bits and moments of fewer bits are widened and rounded again piece by piece; parameters without a
// master are dequantized, moved and rounded into codes in blocks of rows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/optim/update_rule.h"

namespace bitgrad {

class Optimizer {
 public:
  // Throws Error for an unknown rule, or a value out of range.
  explicit Optimizer(OptimizerSpec spec);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes the state of these parameters and of their learned parts; they must outlive the optimizer. Frozen ones are
  // left out. Throws Error that names the parameter for a combination of rule, master, scheme and dtype that cannot
  // train (docs/numerics.md section 6).
  void attach(const std::vector<Parameter*>& parameters);
  // One step at rate lr; gradients are sums over `samples` samples. Parameters without a gradient are left alone.
  // Gradients become zero. Throws Error(kNonFinite) that names the parameter when a gradient, or the sum for a learned
  // part, holds NaN or Inf, or their norm overflows; no parameter and no state has moved then, and the window's
  // gradients are of no further use.
  void step(float lr, int64_t samples);

  const OptimizerSpec& spec() const { return spec_; }
  int64_t steps() const { return steps_; }
  // The global norm of the last step, before clipping (0 unless clip_norm is on).
  float last_norm() const { return last_norm_; }

  // Everything that a checkpoint holds beside the step count, sharing the optimizer's bytes:
  // "<parameter path>.<family>.<part>" fp32, bf16 [shape], or int8, uint8 [numel] with ".scale" fp32 [blocks of 256].
  struct StateTensor {
    std::string name;
    Tensor tensor;
  };
  std::vector<StateTensor> state() const;
  // Resume: `steps` were done.
  void set_steps(int64_t steps);

 private:
  struct Slot;
  void add_slot(Parameter* parameter);
  UpdateRule& rule_of(const Parameter& parameter);
  void check_finite() const;
  [[noreturn]] void refuse(const Parameter& parameter, const Tensor& g) const;
  double finish_early(int64_t samples, bool all);
  float norm_factor(double sum_of_squares);
  void update_rows(Slot& slot, const Tensor& g, const Tensor& x, int64_t first, float lr, float factor);
  void step_slot(Slot& slot, float lr, int64_t samples, float factor);

  OptimizerSpec spec_;
  int64_t steps_ = 0;
  float last_norm_ = 0;
  std::map<std::string, std::unique_ptr<UpdateRule>> rules_;  // by name: the run's, and those that parameters name
  std::vector<std::unique_ptr<Slot>> slots_;
};

// As the constructor.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);

}  // namespace bitgrad
