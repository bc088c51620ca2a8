// bitgrad's side of bench_step: a layer or a net in a Learner, driven as in a training run.
#pragma once

#include <memory>
#include <vector>

#include "bench_step_options.h"
#include "bitgrad/train/learner.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// The part that a step omits. The time of a part is the difference between the whole step and a step without it.
enum class Without { kNothing, kInputGradient, kRequantize, kUpdate };

// For all measurements: CPU time of the thread for one CPU thread, else wall time.
TimeBase time_base(const Options& options);

// Runs on the device that is current at construction, and must be current in each step.
class Ours {
 public:
  Ours(const Case& what, const Options& options, Without without);
  ~Ours();
  // One optimizer step of `accumulate` microbatches, with requantization of the masters.
  void step();
  // Nanoseconds from the start to the end of each microbatch's forward pass, in all steps so far.
  const std::vector<double>& forward_ns() const;
  void forget_times();
  // Whether the update ran inside the backward pass, so that no gradient of a quantized weight was stored.
  bool fused() const;
  // Whether the steps were launched as recorded graphs.
  bool recorded() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bitgrad::bench
