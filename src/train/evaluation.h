// Evaluation of batches and of whole data sets. docs/numerics.md section 10.
#pragma once

#include <functional>
#include <utility>

#include "bitgrad/train/learner.h"
#include "train/batch_feed.h"
#include "train/step.h"

namespace bitgrad::detail {

// Runs the model in evaluation mode, without a tape. `measures` and `hook` are called by evaluate.
class Evaluator {
 public:
  explicit Evaluator(TrainState& state, Measures measures = {}, OutputHook hook = {})
      : s_(state), measures_(std::move(measures)), hook_(std::move(hook)) {}
  Tensor predict(const Tensor& x);
  StepResult evaluate(const Tensor& x, const Target& target);

 private:
  // Measures for metrics other than loss and hits.
  void measure(const Tensor& outputs, const Tensor& target, const StepOutcome& outcome) const;
  void run(const Tensor& x, const std::function<void()>& work);
  void run_in_mode(const std::function<void()>& work);
  void run_measures(const Tensor& outputs, const Tensor& target, const StepOutcome& outcome) const;

  TrainState& s_;
  const Measures measures_;
  const OutputHook hook_;
};

// Which ranks evaluate: all, each every size-th batch, or the first alone. Either way all of them call evaluate, and
// have the result, with the bits of a single rank.
struct EvaluationRanks {
  Communicator* ranks = nullptr;  // nullptr: this rank alone, and no other knows
  bool first_alone = false;       // the learners of the others are not used
};

// Like evaluate (bitgrad/train/learner.h), but data may reside on the device, and only the first batches are used:
// until at least `samples` samples were read and a target counted. `stop` is called before each batch of every rank; if
// it returns true, which it must on all ranks, evaluation ends without a result. `hook` observes the outputs of every
// batch in order, on all ranks; give it to all or to none.
std::optional<Evaluation> evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident,
                                   int64_t samples = INT64_MAX, const std::function<bool()>& stop = {},
                                   const OutputHook& hook = {}, EvaluationRanks among = {});

}  // namespace bitgrad::detail
