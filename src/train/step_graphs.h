// The stages of a step as two graphs of a device: those before the poll of the errors, and those after it
// (train/step.h). Graphs are made by the key of the step.
//
// The first step of a key runs one kernel after another, the second records, the others repeat. What changes from one
// to the next is in memory of the device: batch, target, and StepScalars (base/step_scalars.h). What the host does in
// the stages is done again here: whose gradients hold sums, which parameters take part in the update.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/device_work.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/kernels/flag.h"
#include "train/step.h"

namespace bitgrad {

class Learner::Graphs {
 public:
  explicit Graphs(Learner& learner);
  ~Graphs();

  // Notes that such a step came; whether its work is recorded, or is to be now: from the second time on.
  bool count_and_serve(const Step& step);
  // As Step's. Where the device, or something in the stages, cannot be recorded, they run one by one, and why_not()
  // says why.
  void run_front(Step& step);
  void run_back(Step& step);
  // Parameters, layers or the optimizer changed: all is recorded anew.
  void forget();

  int64_t launches() const { return launches_; }
  // Empty: recorded. Found, and told in the log, anew for each form of the model.
  const std::string& why_not();

 private:
  struct Part {
    std::unique_ptr<StepRecord> graph;
    std::unique_ptr<FlagRecord> flags;
  };
  struct Front : Part {
    Outcome outcome;
    std::vector<Parameter*> gradients;  // that hold sums after it
  };
  struct Batch {
    Tensor x, target;
  };
  using Place = std::pair<int64_t, int64_t>;  // rows, elements of the target
  void write(const StepScalars& now);
  void log_why_not() const;
  // False: it cannot be recorded, and why_not() says so; all records and copies of batches are gone, and references to
  // them dangle.
  bool record(Part& part, const std::function<void()>& body);
  void launch(Part& part);
  const Batch& copy(const Step& step);

  Learner& l_;
  Tensor live_;
  std::map<Place, Batch> batches_;  // where recorded work reads
  StepScalars now_;
  std::map<Step::Key, int64_t> seen_;
  std::map<Step::Key, Front> fronts_;
  std::map<Step::Key, Part> backs_;
  int64_t launches_ = 0;
  bool asked_ = false;  // why_not_ is that of the model as it is
  std::string why_not_;
};

}  // namespace bitgrad
