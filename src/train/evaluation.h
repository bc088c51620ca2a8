// Evaluation: what batches, and whole data sets, score. docs/numerics.md section 10.
#pragma once

#include <functional>

#include "bitgrad/train/trainer.h"
#include "train/resident_data.h"
#include "train/step.h"

namespace bitgrad {

// The learner's model in evaluation mode, without a tape. Made for one batch.
class Learner::Evaluator {
 public:
  explicit Evaluator(Learner& learner) : l_(learner) {}
  Tensor predict(const Tensor& x);
  StepResult evaluate(const Tensor& x, const Tensor& target, int64_t counted);
  // What metrics need beside loss and hits.
  void measure(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const;

 private:
  void run(const Tensor& x, const std::function<void()>& work);
  void run_in_mode(const std::function<void()>& work);
  void run_measures(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const;

  Learner& l_;
};

}  // namespace bitgrad

namespace bitgrad::detail {

// evaluate (train/trainer.h) with data that may be on the device; of the first batches that hold `samples` and a target
// that counts. stop, asked before each batch: true ends it, and there is no result. hook: sees the outputs of every
// batch.
std::optional<Evaluation> evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident,
                                   int64_t samples = INT64_MAX, const std::function<bool()>& stop = {},
                                   const OutputHook& hook = {});

}  // namespace bitgrad::detail
