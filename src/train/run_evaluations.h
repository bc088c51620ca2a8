// The evaluations of a run: what they say of the model, which model is the best one, and whether that ends the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bitgrad/train/metrics_log.h"
#include "bitgrad/train/trainer.h"
#include "train/examination.h"

namespace bitgrad {

class Trainer::Evaluations {
 public:
  // What the run lends: all of it outlives the evaluations.
  struct Run {
    const std::string& folder;  // empty: nothing is written
    const TrainHooks& hooks;
    MetricsLog* metrics;  // nullptr: there is none
    std::function<bool()> cut;
    std::function<void(const std::string& path)> save;
  };
  Evaluations(Trainer& trainer, Run run);

  // On what selects the best model. Where a request to stop ends it, a resumed run repeats it.
  void evaluate();
  // The step of the last one; -1: there was none.
  int64_t step() const { return step_; }
  // Of a run that stops here: what is said of its model. Where the run has come to its end, the evaluation of the end
  // comes first.
  void finish(TrainOutcome& outcome);

 private:
  void record(const Evaluation& result);
  void note_improvement(const Evaluation& result);
  EvalEvent event_of(const Evaluation& result, const std::string& split, int64_t step) const;
  void report(const EvalEvent& e);
  void examine(const std::string& section);
  void write_examination(const EvalEvent& e);
  OutputHook hook_of(const std::string& section);
  void evaluate_end(TrainOutcome& outcome);
  void evaluate_best_on_test(TrainOutcome& outcome);
  std::optional<Evaluation> evaluate_best(int64_t& step);

  Trainer& t_;
  const Run run_;
  int64_t step_ = -1;
  Evaluation last_;                                   // at that step
  std::string examined_;                              // the section that examination_ looks at: "valid", "test"
  std::unique_ptr<detail::Examination> examination_;  // nullptr: nothing is written of wrong samples
};

}  // namespace bitgrad
