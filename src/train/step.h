// The order of one training step, in one place for every device. docs/numerics.md section 6.
//
//   each microbatch:       forward, backward, sum
//   at the window's end:   reduce, check_forward, check_gradients | the host polls errors | update, requantize
//
// The window (train/window.cpp) drives the two parts and does the host's work in between. In windows of one microbatch
// that are not recorded, backward first runs check_forward and arms the optimizer, which fuses on the CPU only: weights
// whose gradient is produced row by row are then updated and requantized inside backward, and the last two stages
// handle the rest. Optimizer::step has the same order without a learner.
//
// The CPU runs the stages one after another. A device queues them, or records those before the poll and those after it
// as two graphs and launches these (train/step_graphs.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/error.h"
#include "bitgrad/tensor/tensor.h"

#include "optim/square_sums.h"
#include "train/train_state.h"

namespace bitgrad::detail {

// Reads the single element of a tensor on the current device (fp32, fp64 or int64) into `to`: on the CPU immediately,
// on a device in poll_errors().
void read_later(const Tensor& number, const std::shared_ptr<double>& to);

// Results of the stages, available after poll_errors().
struct StepOutcome {
  static std::shared_ptr<double> zero() { return std::make_shared<double>(0.0); }
  std::shared_ptr<double> loss = zero(), correct = zero(), among_top5 = zero(), squared_error = zero();
  std::shared_ptr<double> cross_entropy;  // nullptr: not measured
  std::shared_ptr<std::map<std::string, double>> measured = std::make_shared<std::map<std::string, double>>();
  std::shared_ptr<bool> backward_done = std::make_shared<bool>(false);  // unless an earlier error was polled
  std::shared_ptr<SquareSums> sums = std::make_shared<SquareSums>();    // of complete gradients
  void write_to(StepResult& result) const;
};

struct Forward {
  Var outputs, loss;
};
// Outputs of the model. What layers know about the positions in x stays in the state until end_sequences: after
// backward, or the evaluation.
Var run_model(TrainState& s, const Tensor& x);
inline void end_sequences(TrainState& s) { s.state.sequence.starts = Tensor(); }
// The same with the loss, which `outcome` gets, with the hits, when errors are polled.
Forward run_forward(TrainState& s, const Tensor& x, const Target& target, const StepOutcome& outcome);

class Step {
 public:
  // Everything that determines the work of a microbatch, except the batch itself and the scalars of the step.
  struct Key {
    int64_t rows = 0, target = 0, counted = 0;  // samples; target elements, and how many count
    double divisor = 0;                         // total weight of a window that ends here
    bool first = false, last = false;           // in its window
    bool requantize = false;                    // codes are computed from the masters at the window's end
    int64_t document_end = -1;
    auto operator<=>(const Key&) const = default;
  };

  // The next microbatch of the window.
  Step(TrainState& state, const Tensor& x, const Target& target);
  // Ends an open window without a further microbatch.
  explicit Step(TrainState& state);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const Key& key() const { return key_; }
  bool has_microbatch() const { return has_microbatch_; }
  // Nothing counts in the window, on any rank: neither checks nor updates run. Known after the front part.
  bool empty() const { return key_.last && key_.divisor == 0; }
  const Tensor& x() const { return x_; }
  const Target& target() const { return target_; }
  // Run the stages of this step before the poll of the errors, and those after it.
  void run_front() { run(kFront); }
  void run_back() { run(kBack); }
  // Host work in between: learning rate, norm factor, the update rules' own scalars.
  void set_rule_factors();
  void set_scalars();
  // The host's part of stage check_gradients, repeated when recorded work is launched: selects the parameters with
  // gradients for the update. Does nothing inside a window.
  void begin_optimizer_step();

  // Makes recorded work read its batch from, and write its results to, memory that stays in place. Disables fused
  // updates.
  void record_at(const Tensor& x, const Tensor& target, const StepOutcome& outcome);
  void run_one_by_one(const Tensor& x, const Target& target);  // undoes record_at
  const StepOutcome& outcome() const { return outcome_; }

 private:
  enum Part : uint8_t { kFront, kBack };
  enum When : uint8_t { kEachMicrobatch, kWindowEnd };
  struct Stage {
    std::string_view name;  // of its range for a profiler
    Part part;
    When when;
    void (Step::*run)();
  };
  static const Stage kStages[];
  void run(Part part);
  bool runs(const Stage& stage) const;

  void forward();
  void backward();
  void run_backward();
  void sum();
  void reduce();
  void check_forward();
  void check_gradients();
  void update();
  void requantize();
  void choose_gradient_rounding() const;

  TrainState& s_;
  Tensor x_;
  Target target_;
  Key key_;
  bool has_microbatch_ = true, recorded_ = false;
  float learning_rate_ = 0;
  std::optional<RequantKey> due_;
  StepOutcome outcome_;
  // Alive from forward to backward.
  std::optional<Tape> tape_;
  Var loss_;
};

// Detects samples with NaN or Inf. Whatever training or evaluation then finds is not the model's fault.

// Describes the first non-finite value, e.g. "x [2,5] fp32 holds NaN at [0,1]"; empty if x is finite or holds ids. On
// the CPU this is one fast read of x; from a device x is copied, so call it only after an error.
std::string non_finite_input(const Tensor& x);

// Throws Error(kNonFinite) for `input`, a text from non_finite_input. what_moved: a sentence about the parameters, or
// "".
[[noreturn]] void fail_input(const std::string& input, std::string_view what_moved);

// Both in one, for evaluation.
void check_input(const Tensor& x);

}  // namespace bitgrad::detail
