// The evaluations of a run: their results, which model is the best so far, and whether the run stops early.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bitgrad/run/metrics_log.h"
#include "bitgrad/run/trainer.h"
#include "run/examination.h"

namespace bitgrad {

class Trainer::Evaluations {
 public:
  // Provided by the run; must outlive the evaluations.
  struct Run {
    const std::string& folder;  // empty: nothing is written
    const TrainHooks& hooks;
    MetricsLog* metrics;  // nullptr: no metrics log
    std::function<bool()> cut;
    std::function<void(const std::string& path)> save;
  };
  Evaluations(Trainer& trainer, Run run);

  // Evaluates on the data that select the best model. If a request to stop cuts this short, a resumed run repeats it.
  void evaluate();
  // The step of the last evaluation; -1 if there was none.
  int64_t step() const { return step_; }
  // Sets the evaluation in `outcome` when the run stops. If the run is complete, evaluates the final model first if
  // needed.
  void finish(TrainOutcome& outcome);

 private:
  void require_defined(const Evaluation& result, const std::string& section) const;
  void record(const Evaluation& result);
  static void note(const Evaluation& result, const BestRule& rule, double min_delta, std::optional<double>& best,
                   int64_t& waited);
  void follow_plateau(const Evaluation& result);
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
  Evaluation last_;                                   // at step_
  std::optional<Evaluation> average_;                 // of the average of train.ema
  std::string examined_;                              // the section observed by examination_: "valid", "test"
  std::unique_ptr<detail::Examination> examination_;  // nullptr: wrong samples are not written
};

}  // namespace bitgrad
