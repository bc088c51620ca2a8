// The order of one step of training, in one place for every device. docs/numerics.md section 6.
//
//   each microbatch:       forward, backward, sum
//   at the window's end:   reduce, check_forward, check_gradients | the host reads what was found | update, requantize
//
// Learner::run drives the two parts and does the host's work between them. Windows of one microbatch that are not
// recorded: stage backward first runs check_forward and arms the optimizer, which fuses on the CPU only: weights whose
// gradient comes in rows are then updated and requantized inside it, and update and requantize handle the rest.
// Optimizer::step is the same order without a learner.
//
// The CPU runs the stages one after another. A device queues them, or records those before the reading and those
// after it as two graphs, and launches the graphs (train/step_graphs.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/train/learner.h"
#include "optim/square_sums.h"

namespace bitgrad {

namespace detail {
// The one element of a tensor of the current device (fp32, fp64 or int64), available after poll_errors(); on the CPU
// immediately.
void read_later(const Tensor& number, const std::shared_ptr<double>& to);
}  // namespace detail

// What stages find out, available after poll_errors().
struct Learner::Outcome {
  static std::shared_ptr<double> zero() { return std::make_shared<double>(0.0); }
  std::shared_ptr<double> loss = zero(), correct = zero(), among_top5 = zero(), squared_error = zero();
  std::shared_ptr<std::map<std::string, double>> measured = std::make_shared<std::map<std::string, double>>();
  std::shared_ptr<bool> backward_done = std::make_shared<bool>(false);                // and the forward was finite
  std::shared_ptr<detail::SquareSums> sums = std::make_shared<detail::SquareSums>();  // of the finished gradients
  void write_to(StepResult& result) const;
};

class Learner::Step {
 public:
  // All that the work of a microbatch depends on, beside the batch and the scalars of the step.
  struct Key {
    int64_t rows = 0, target = 0, counted = 0;  // samples; elements of the target, and how many of them count
    int64_t divisor = 0;                        // elements that count in a window that ends here
    bool first = false, last = false;           // of its window
    bool requantize = false;                    // codes are made from the masters at its end
    int64_t document_end = -1;
    auto operator<=>(const Key&) const = default;
  };

  // The next microbatch of the learner's window.
  Step(Learner& learner, const Tensor& x, const Target& target);
  // The end of an open window without a further microbatch.
  explicit Step(Learner& learner);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const Key& key() const { return key_; }
  bool has_microbatch() const { return has_microbatch_; }
  const Tensor& x() const { return x_; }
  const Target& target() const { return target_; }
  // The stages before the poll of the errors, and those after it: the ones that this step has.
  void run_front() { run(kFront); }
  void run_back() { run(kBack); }
  // Between them, on the host: learning rate, factor of the norm, the rules' own scalars.
  void set_scalars();
  // What the host does in stage check_gradients, for recorded work that is launched again: the parameters with
  // gradients take part in the update. Nothing inside a window.
  void begin_optimizer_step();

  // Recorded work reads its batch from, and leaves its numbers in, places that stay where they are. Updates are not
  // fused then.
  void record_at(const Tensor& x, const Tensor& target, const Outcome& outcome);
  void run_one_by_one(const Tensor& x, const Target& target);  // takes record_at back
  const Outcome& outcome() const { return outcome_; }

 private:
  enum Part : uint8_t { kFront, kBack };
  enum When : uint8_t { kEachMicrobatch, kWindowEnd };
  struct Stage {
    Part part;
    When when;
    void (Step::*run)();
  };
  static const Stage kStages[];
  void run(Part part);

  void forward();
  void backward();
  void sum();
  void reduce();
  void check_forward();
  void check_gradients();
  void update();
  void requantize();

  Learner& l_;
  Tensor x_;
  Target target_;
  Key key_;
  bool has_microbatch_ = true, recorded_ = false;
  float learning_rate_ = 0;
  std::optional<RequantKey> due_;
  Outcome outcome_;
  // From forward to backward.
  std::optional<Tape> tape_;
  Var loss_;
};

}  // namespace bitgrad
