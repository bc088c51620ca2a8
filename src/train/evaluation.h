// Evaluation of batches and of whole data sets. docs/numerics.md section 10.
#pragma once

#include <functional>

#include "bitgrad/train/trainer.h"
#include "train/resident_data.h"
#include "train/step.h"

namespace bitgrad {

// Runs the learner's model in evaluation mode, without a tape. Short-lived: constructed per batch.
class Learner::Evaluator {
 public:
  explicit Evaluator(Learner& learner) : l_(learner) {}
  Tensor predict(const Tensor& x);
  StepResult evaluate(const Tensor& x, const Tensor& target, int64_t counted, double weight);
  // Measures for metrics other than loss and hits.
  void measure(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const;

 private:
  void run(const Tensor& x, const std::function<void()>& work);
  void run_in_mode(const std::function<void()>& work);
  void run_measures(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const;

  Learner& l_;
};

}  // namespace bitgrad

namespace bitgrad::detail {

// Like evaluate (train/trainer.h), but data may reside on the device, and only the first batches are used: until at
// least `samples` samples were read and a target counted. `stop` is called before each batch; if it returns true,
// evaluation ends without a result. `hook` observes the outputs of every batch.
std::optional<Evaluation> evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident,
                                   int64_t samples = INT64_MAX, const std::function<bool()>& stop = {},
                                   const OutputHook& hook = {});

}  // namespace bitgrad::detail
