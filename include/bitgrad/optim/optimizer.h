// The optimizer: one step of all parameters from their gradients. docs/numerics.md section 6, in this order:
//   divide by the count of the window (samples, or tokens of a loss per position); quantizer backward
//   (straight-through, gradients of learned parts); value clip; global-norm clip; decay; update; latent clamp and
//   floor; requantize when due.
// One sweep over blocks of rows does all of it: masters and moments of fewer bits are widened and rounded again, and
// codes and layouts are made, while the numbers are in a cache. Parameters without a master are dequantized, moved and
// rounded into codes.
//
// Fused: arm() before backward lets ops hand the gradients of whole rows to this sweep as they make them, so that the
// gradient of a weight never exists as a whole. The bits are those of the step that comes afterwards.
//
// Parameters are on the device that is current when they are attached and moved. On one other than the CPU the step
// comes after backward, with whole tensors, where it can as one kernel a parameter (not_one_kernel), and waits for the
// device once, before anything moves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"
#include "bitgrad/optim/requant.h"
#include "bitgrad/optim/update_rule.h"

namespace bitgrad {

namespace detail {
class SquareSums;
}

class Optimizer {
 public:
  // Throws Error for an unknown rule, or a value out of range.
  explicit Optimizer(OptimizerSpec spec);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes the state of these parameters and of their learned parts; they must outlive the optimizer, or the next
  // attach. Frozen ones, of either, are left out. Attached anew on a step boundary: state of a parameter of the same
  // path, shape, family and moments is kept, other state is zeros; the count of steps goes on. The parameters of the
  // attach before may be gone. Throws Error that names the parameter for a combination of rule, master, scheme and
  // dtype that cannot train (docs/numerics.md section 6); what was attached before stays then.
  void attach(const std::vector<Parameter*>& parameters);
  // What attach would throw; changes nothing.
  void check(const std::vector<Parameter*>& parameters);
  // One step at rate lr; gradients are sums over `count` samples, or tokens where the loss counts those. Parameters
  // without a gradient are left alone. Gradients become zero. due: then every parameter with a master is requantized,
  // those without a gradient too. Throws Error(kNonFinite) that names the parameter when a gradient, or the sum for a
  // learned part, holds NaN or Inf, or their norm overflows; unless rows were updated in backward, no parameter and no
  // state has moved then, and the window's gradients are of no further use. New numbers that are not finite throw
  // Error(kNonFinite) that names the parameter, and leave half_moved(): on the CPU in this step; on a device those that
  // become codes are found when the errors are polled, others by the loss, or when they are saved.
  void step(float lr, int64_t count, const RequantKey* due = nullptr);

  // Begins the step `step` will end, with the same arguments: from now on parameters that not_fused() has nothing
  // against are moved inside backward, where an op gives their gradient in rows and they are read once on the tape. The
  // forward was finite, and the window is this one backward. A gradient that is not finite throws Error(kNonFinite)
  // that names the parameter out of backward.
  void arm(float lr, int64_t count, const RequantKey* due = nullptr);
  // Takes arm() back after a failed backward.
  void disarm();
  // An Error left the parameters between two steps: nothing that was attached is of further use.
  // On a device other than the CPU it is known when the errors are polled (kernels/flag.h).
  bool half_moved() const { return half_moved_ || *lost_; }
  // The parts of step, in their order, for a list of stages that a device may record (train/step.h,
  // base/device_work.h):
  //   begin_step     on the host: which parameters take part
  //   reduce_norms   queues the checks of gradients, those of learned parts, the sum of squares; poll_errors() then
  //                  fills `sums`
  //   set_scalars    on the host: learning rate, factor of the norm, begin_step of the rules; from here on an Error
  //                  leaves half_moved()
  //   apply          the updates, with the codes that are made in the same sweep
  //   requantize     the codes that are due and were not made there
  //   end_step       on the host
  void begin_step(float lr, int64_t count);
  void reduce_norms(int64_t count, detail::SquareSums& sums);
  void set_scalars(float lr, int64_t count, const detail::SquareSums& sums);
  void apply(const RequantKey* due);
  void requantize(const RequantKey* due);
  void end_step();
  // After set_scalars: the scalars of this step that recorded work reads.
  void write_scalars(StepScalars& live) const;
  // Why the work of a step cannot be recorded; empty: it can.
  std::string not_recorded() const;
  // Why the updates of a parameter are never fused; empty: they are where ops allow it.
  std::string not_fused(const Parameter& parameter) const;
  // Why the step of a parameter on a device, from its gradient to its codes, is more than one kernel; empty: it is one
  // (kernels/update_rows.h).
  std::string not_one_kernel(const Parameter& parameter) const;
  // Of the last step, in the order of attach, learned parts left out: whether the update was fused, else why not.
  struct FusedUpdate {
    std::string path = {};
    std::string why_not = {};  // empty: fused
  };
  const std::vector<FusedUpdate>& fused_updates() const { return updates_; }

  const OptimizerSpec& spec() const { return spec_; }
  int64_t steps() const { return steps_; }
  // The global norm of the last step, before clipping (0 unless clip_norm is on).
  float last_norm() const { return last_norm_; }

  // Everything that a checkpoint holds beside the step count, sharing the optimizer's bytes:
  // "<parameter path>.<family>.<part>" fp32, bf16 [shape], or int8, uint8 [numel] with ".scale" fp32 [blocks of 256].
  struct StateTensor {
    std::string name = {};
    Tensor tensor = {};
  };
  std::vector<StateTensor> state() const;
  // Resume: `steps` were done.
  void set_steps(int64_t steps);

 private:
  struct Slot;
  class FusedRows;
  struct Armed {
    float lr;
    int64_t count;
    std::optional<RequantKey> due;
  };
  using Slots = std::vector<std::unique_ptr<Slot>>;
  using SlotsByPath = std::multimap<std::string, Slot*>;
  std::unique_ptr<Slot> make_slot(Parameter* parameter, const SlotsByPath& before);
  std::string not_fused(const Parameter& parameter, const Slot* slot) const;
  UpdateRule& rule_of(const Parameter& parameter);
  void check_finite(const Slot& slot) const;
  [[noreturn]] void refuse(const Parameter& parameter) const;
  bool norm_in_one_pass(const Slot& slot) const;
  bool finishes_early(const Slot& slot) const;
  void finish_early(Slot& slot, int64_t count, detail::SquareSums* sums);
  float norm_factor(double sum_of_squares);
  void replay(UpdateRule& rule) const;
  void begin_rules();
  void check_step(float lr, int64_t count) const;
  std::string why_not(const Slot& slot) const;
  void unfuse(Slot& slot);

  // Of the step that moves.
  struct Now {
    float lr = 0;
    int64_t count = 1;
    float factor = 1;
  };

  OptimizerSpec spec_;
  int64_t steps_ = 0;
  bool replay_due_ = false;  // rules are not at steps_ yet
  Now now_;
  float last_norm_ = 0;
  std::optional<Armed> armed_;
  bool half_moved_ = false;
  std::shared_ptr<bool> lost_ = std::make_shared<bool>(false);  // half moved, found after the step; shared with flags
  std::vector<FusedUpdate> updates_;
  std::map<std::string, std::unique_ptr<UpdateRule>> rules_;  // by name: the run's, and those that parameters name
  Slots slots_;
};

// As the constructor.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec);

}  // namespace bitgrad
