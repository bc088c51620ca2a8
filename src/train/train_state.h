// What the steps of a learner change and a checkpoint stores, and what they depend on. Steps, phases and evaluation
// (train/step.h, train/phases.h, train/evaluation.h) work on it; Learner is its face for programs.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::inference {
class IntegerNetwork;  // nn/integer_graph.h
}

namespace bitgrad::detail {

// Saves and restores the values of a model.

// A copy of codes that shares neither bytes nor scales with them.
Tensor copy_with_scales(const Tensor& codes);

// A copy of all parameters and buffers of a model. They can be restored after its form was changed and changed back.
class ModelSnapshot {
 public:
  explicit ModelSnapshot(Module& model);
  void restore(Module& model) const;

 private:
  std::map<std::string, ParameterState> parameters_;
  std::map<std::string, Tensor> buffers_;
};

class Averages;    // train/averages.h
class Phases;      // train/phases.h
class Reducer;     // train/reducer.h
class StepGraphs;  // train/step_graphs.h
class WindowSums;  // train/window_sums.h

// The microbatches of this rank since the last step. Skipped ones count, and have the weight 0.
struct Window {
  int64_t microbatches = 0, samples = 0;
  std::vector<double> weights;
  std::vector<StepResult> results;
  int64_t start = 0;               // global microbatch count at its start
  int64_t all = 0;                 // microbatches of all ranks until its end; set at its start
  std::string bad_input;           // the first input known to hold NaN or Inf
  std::optional<double> bad_loss;  // a non-finite loss since flags were last checked

  double weight() const;
  void end() { microbatches = samples = 0, weights.clear(), results.clear(); }
};

// Codes and counter from before flush requantized within a window of policy.every microbatches, from which a longer
// run continues exactly. Codes by path; empty: flush cut no such window, or training has gone on.
struct CutWindow {
  int64_t since_requantize = 0;
  std::map<std::string, Tensor> codes = {};
};

struct TrainState {
  TrainState(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer,
             const RequantPolicy& policy, std::function<float(int64_t)> learning_rate, uint64_t seed,
             LearnerUse use = LearnerUse::kTrain);
  TrainState(const TrainState&) = delete;  // modules point to `state`
  TrainState& operator=(const TrainState&) = delete;
  ~TrainState();

  const Device device = current_device();
  StepState state;
  std::shared_ptr<Module> model;
  LossFunction loss;
  std::unique_ptr<Optimizer> optimizer;
  const RequantPolicy policy;
  std::function<float(int64_t)> learning_rate;
  std::function<RuleFactors(int64_t)> rule_factors;
  int64_t total_steps = 0, total_microbatches = 0;  // of the run; 0: unknown
  std::vector<Parameter*> parameters;
  Window window;
  std::vector<double> rank_seconds;      // Learner::rank_seconds
  std::vector<StepResult> last_results;  // of the microbatches of all ranks in the window that ended last, in order
  Learner::Skipped skipped;
  int64_t since_requantize = 0;  // microbatches
  CutWindow cut_window;
  std::unique_ptr<Averages> average;    // nullptr: none
  std::unique_ptr<WindowSums> sums;     // for kTree; nullptr: gradients are added as they come
  std::shared_ptr<Communicator> ranks;  // nullptr: a single rank
  WireFormat wire = WireFormat::kExact;
  std::unique_ptr<Reducer> reducer;  // with ranks
  ObserverUpdate observer_update = ObserverUpdate::kAuto;
  std::unique_ptr<StepGraphs> graphs;  // nullptr: nothing is recorded
  std::unique_ptr<Phases> phases;
  std::optional<PlanSpec> plan;
  bool converted = false;
  std::shared_ptr<const inference::IntegerNetwork> integer;  // that evaluation computed last (train/integer.h)
  uint64_t integer_of = 0;                                   // checksum of what it was made from
  bool all_set = false;                                      // require_values has found values of all parameters
  int64_t document_end = -1;
  // Host work to run once per microbatch and predict on a device, after its work is queued and before the host waits
  // for it. Must not throw. Not called on the CPU.
  std::function<void()> host_overlap;
  // Keys of metrics, by name, for the evaluation of a data set. A metric with Metric::follow is measured only if it is
  // here.
  std::map<std::string, Attributes> metric_keys;
  // What another program's files say about the model (interop/model_origin.h); kept in every file that is saved.
  std::string origin;

  bool usable() const;
  void require_usable() const;
  // Polls the flags of a device first.
  void check_usable() const;
  // Throws if the learner is made to predict (LearnerUse): it has no state of training. `what` is not done.
  void require_trainable(std::string_view what) const;
  // Throws if a parameter is unset.
  void require_values();
  // Microbatches of a window that this rank runs if all ranks run `all`, and those that the others run in this one.
  int64_t share() const { return policy.accumulate / ranks->size(); }
  int64_t own_microbatches(int64_t all) const {
    return ranks ? std::clamp<int64_t>(all - ranks->rank() * share(), 0, share()) : policy.accumulate;
  }
  int64_t own_microbatches() const { return own_microbatches(window.all); }
  int64_t others_microbatches() const { return ranks ? window.all - own_microbatches() : 0; }
  // Microbatches of a window that would begin now: fewer than policy.accumulate at the end of a run, if it is known.
  int64_t window_ahead() const {
    const int64_t left = total_microbatches - state.microbatch - skipped.microbatches;
    return ranks && total_microbatches > 0 ? std::min(policy.accumulate, left) : policy.accumulate;
  }
  // The requantization due after another `microbatches`, if any.
  std::optional<RequantKey> due_after(int64_t microbatches) const;
  // x in the planned sample shape, if it has as many elements.
  Tensor as_planned(const Tensor& x) const;
  void overlap() const {
    if (!device.is_cpu() && host_overlap) host_overlap();
  }

  // Throws if a flag was raised or a loss was not finite. On a device the check is queued, and runs in order with other
  // checks when errors are polled.
  void check_flags(const char* when);
  void requantize();
  void plan_and_check(const PlanSpec& spec);
  // Updates everything that depends on the form of the model.
  void rebind();
  void forget_recorded();
  void set_window_sum(WindowSum sum);
  void set_observer_update(ObserverUpdate update);
  // On several ranks: brings masters, moments and averages of all rows there, from the ranks that update them. All
  // ranks call it; does nothing if they are there.
  void gather_state(Optimizer::Place place = Optimizer::Place::kAllRanks);
  void require_whole(std::string_view what) const;
  // Adds what the present phase trains and the average does not have yet.
  void follow_average();
  // Calls `run` while the average, which there is, takes the place of the values.
  void with_average(const std::function<void()>& run);
};

// The target of a microbatch, the number of its elements that count, and their total weight.
struct Target {
  Tensor tensor;
  int64_t counted = 0;
  double weight = 0;
};
// Checks it before a layer sees the samples, so that a rejected microbatch does not update norm statistics.
Target checked_target(const TrainState& s, const Tensor& x, const Target& given);

// The microbatches of windows (train/window.cpp). Errors as in Learner::microbatch.
StepResult run_microbatch(TrainState& s, const Tensor& x, const Target& target);
void flush(TrainState& s);
void drop_window(TrainState& s);
// Gives codes and counter the values of the cut window, so that training goes on inside it. Does nothing if it is
// empty.
void reopen_window(TrainState& s);
// Continues at a step boundary of another run.
void set_counters(TrainState& s, int64_t step, int64_t microbatch, int64_t since_requantize);

}  // namespace bitgrad::detail
