// The stages of a step as two graphs of a device: those before the poll of the errors, and those after it
// (train/step.h). Graphs are kept per key of the step.
//
// The first step of a key launches kernels one by one, the second is recorded, later ones replay. Everything that
// changes between steps is in device memory: batch, target, and StepScalars (base/step_scalars.h). What the stages do
// on the host is repeated here: marking which parameters have gradients, and which take part in the update.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/step_scalars.h"
#include "kernels/flag.h"
#include "train/step.h"

namespace bitgrad::detail {

class StepGraphs {
 public:
  explicit StepGraphs(TrainState& state);
  ~StepGraphs();

  // Counts a step with this key. Returns whether to call run_front and run_back: from the second one on, if recording
  // works.
  bool count_and_serve(const Step& step);
  // Like those of Step. If the device or one of the stages cannot be recorded, they run the stages one by one, and
  // why_not() gives the reason.
  void run_front(Step& step);
  void run_back(Step& step);
  // Drops all records, after a change of parameters, layers or optimizer.
  void forget();

  int64_t launches() const { return launches_; }
  // Why steps cannot be recorded; empty if they can. Determined and logged anew for each form of the model.
  const std::string& why_not();

 private:
  struct Part {
    std::unique_ptr<StepRecord> graph;
    std::unique_ptr<FlagRecord> flags;
  };
  struct Front : Part {
    StepOutcome outcome;
    std::vector<Parameter*> gradients;  // that have gradients after the front part
  };
  struct Batch {
    Tensor x, target;
  };
  using Place = std::pair<int64_t, int64_t>;  // rows, target elements
  void write(const StepScalars& now);
  void log_why_not() const;
  // Returns false if the work cannot be recorded; why_not() gives the reason. All records and copies of batches are
  // gone then, and references to them dangle.
  bool record(Part& part, const std::function<void()>& body);
  void launch(Part& part);
  const Batch& copy(const Step& step);

  TrainState& s_;
  Tensor live_;
  std::map<Place, Batch> batches_;  // read by recorded work
  StepScalars now_;
  std::map<Step::Key, int64_t> seen_;
  std::map<Step::Key, Front> fronts_;
  std::map<Step::Key, Part> backs_;
  int64_t launches_ = 0;
  int64_t placements_ = 0;  // Optimizer::placements of what backs_ recorded
  bool asked_ = false;      // why_not_ is up to date for the present form of the model
  std::string why_not_;
};

}  // namespace bitgrad::detail
