// bitgrad's side of bench_step: a layer or a net in a Learner, as a training run drives it.
#pragma once

#include <memory>
#include <vector>

#include "bench_step_options.h"
#include "bitgrad/train/learner.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// What a step leaves out. The time of a part is the difference between the whole step and a step without it.
enum class Without { kNothing, kInputGradient, kRequantize, kUpdate };

// Of all measurements: processor time of the thread for one thread of the CPU, else wall time.
TimeBase time_base(const Options& options);

// On the device that is current when it is made, and in each step.
class Ours {
 public:
  Ours(const Case& what, const Options& options, Without without);
  ~Ours();
  // One optimizer step of `accumulate` microbatches; masters are requantized.
  void step();
  // Nanoseconds from the start of each microbatch to the end of its forward pass, of all steps so far.
  const std::vector<double>& forward_ns() const;
  void forget_times();
  // Whether the update ran inside the backward pass: no gradient of a quantized weight was ever made in memory.
  bool fused() const;
  // Whether steps were launched as recorded graphs.
  bool recorded() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bitgrad::bench
