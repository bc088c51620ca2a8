// Update rules: how an optimizer updates values, or flips signs, once their gradient is finished. One class a file in
// src/optim/, one line each in src/optim/optimizers.inc. The driver (optimizer.h) does the rest of docs/numerics.md
// section 6: it divides and clips gradients, widens masters and moments of fewer bits and rounds them again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/kernels/update_rows.h"
#include "bitgrad/nn/parameter.h"

namespace bitgrad {

struct OptimizerSpec {
  std::string name = "sgd";                // a line of optimizers.inc, or a name given to register_optimizer
  float momentum = 0;                      // sgd
  bool nesterov = false;                   // sgd
  double beta1 = 0.9, beta2 = 0.999;       // adam, adamw
  float eps = 1e-8f;                       // adam, adamw
  float weight_decay = 0;                  // sgd, adam: added to the gradient; adamw: decoupled; bop: none
  bool decay_vectors = true;               // false: weight_decay is for parameters of two axes or more alone
  MomentKind moments = MomentKind::kFp32;  // of parameters that do not say their own
  double base_lr = 0;       // learning rate before the schedule; bop: gamma follows lr / base_lr (0: it is constant)
  float bop_gamma = 1e-4f;  // bop: rate of the moving average of the gradient
  float bop_threshold = 1e-8f;  // bop: a weight flips where its average exceeds this in size and has its sign
  float clip_value = 0;         // 0: off. Gradients are clamped to [-clip_value, clip_value]
  float clip_norm = 0;          // 0: off. All gradients are scaled by clip_norm / norm when norm > clip_norm
  bool fused = true;            // updates may run inside backward (Optimizer::arm)
};

// A piece of one parameter: n neighbours in row-major order, in fp32.
struct UpdatePiece {
  int64_t n = 0;
  float* w = nullptr;                  // the values; for a rule that flips signs: -1 or +1
  float* g = nullptr;                  // finished gradient: divided, clipped; may be overwritten
  std::span<float* const> state = {};  // of parts(), n numbers each
  float lr = 0, weight_decay = 0;
  // While work of a device is recorded (base/step_scalars.h): lr is live->lr * lr_factor.
  const StepScalars* live = nullptr;
  float lr_factor = 1;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // One state tensor a parameter: "<parameter path>.<family>.<name>", zeros at first.
  struct Part {
    std::string_view name = {};
    bool square = false;      // at least 0, a mean of squares: 8 bits hold its root
    bool stochastic = false;  // in bf16: rounded stochastically instead of to nearest even
  };
  // Rules of one family have the same state, so that a run may go on with another of them.
  virtual std::string_view family() const = 0;
  virtual std::vector<Part> parts() const = 0;
  // Bop: parameters are bint1 codes without a master, and the rule does no more than to flip them.
  virtual bool flips_signs() const { return false; }
  // Whether update works on memory of the current device, by kernels (kernels/elementwise.h, maps) and without reading
  // it. A rule that does not cannot train what is on another device than the CPU.
  virtual bool on_device() const { return false; }
  // Whether a piece's `live` is read in place of lr, and everything else that changes from step to step in update is in
  // numbers of StepScalars: its launches may be recorded.
  virtual bool live() const { return false; }
  // The rule's own numbers of StepScalars, after begin_step.
  virtual void write_scalars(StepScalars& live) const { static_cast<void>(live); }
  // Once per optimizer step, before the pieces; `steps` are done so far. Resume: also called for each step done.
  virtual void begin_step(int64_t steps) { static_cast<void>(steps); }
  // Whether no further begin_step changes what update reads: a resumed run, whose file may speak of any number of
  // steps, need not call it for each.
  virtual bool settled() const { return false; }
  // Back to before the first step.
  virtual void reset() {}
  // What update does with a piece, for a kernel of a device that does more in the same sweep
  // (kernels/update_rows.h); none: it does something else, and update is called.
  virtual std::optional<kernels::RowUpdate> row_update(const UpdatePiece& piece) const {
    static_cast<void>(piece);
    return std::nullopt;
  }
  // Moves a piece and its state. Called from several threads at once, for pieces that do not overlap. On a device other
  // than the CPU: once for all of a parameter, with that device current and pointers into its memory.
  virtual void update(const UpdatePiece& piece) const = 0;
};

std::vector<std::string> optimizer_names();
// Throws Error for an unknown name, or a value out of range.
std::unique_ptr<UpdateRule> make_rule(const OptimizerSpec& spec);
using RuleFactory = std::function<std::unique_ptr<UpdateRule>(const OptimizerSpec&)>;
// Adds a rule from a user's program. A known name throws Error.
void register_optimizer(const std::string& name, RuleFactory factory);

}  // namespace bitgrad
