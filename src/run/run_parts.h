// The parts of a run besides its trainer: checks, sums of the lines it prints, files, evaluations, what they get wrong.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/run/metrics_log.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {
namespace detail {

// Both throw Error or ConfigError (run_checks.cpp). check_samples: the data sets fit the loss and one another; valid
// and test may be nullptr. require_readable: the texts of the configuration in the run's files read back as what was
// written; `given_names`: the class names are the user's, not those of the data.
void check_samples(const RunConfig& config, const Dataset& train, const Dataset* valid, const Dataset* test);
void require_readable(const RunConfig& config, bool given_names);

// Sums and times of a run's steps since its last report.

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums over the steps since the last report, including those before a resume.
struct Interval {
  Interval() = default;
  explicit Interval(const RunCounters& c)
      : loss(c.unreported_loss),
        weight(c.unreported_weight),
        correct(c.unreported_correct),
        counted(c.unreported_counted) {}
  double loss = 0, weight = 0;       // weight: of the target elements
  int64_t correct = 0, counted = 0;  // counted: target elements that count
  int64_t samples = 0;
  std::vector<double> busy = {};  // seconds by rank (Learner::rank_seconds)
  Clock::time_point start = Clock::now();
  void add(const StepResult& r) {
    loss += r.loss;
    weight += r.weight;
    correct += r.correct;
    counted += r.counted;
    samples += r.samples;
  }
  void add(const std::vector<double>& seconds) {
    busy.resize(seconds.size());
    std::transform(seconds.begin(), seconds.end(), busy.begin(), busy.begin(), std::plus<>());
  }
  void report(TrainEvent& e, bool classes, int64_t positions) const {
    const double n = static_cast<double>(std::max<int64_t>(counted, 1));
    e.loss = weight > 0 ? loss / weight : 0;
    e.accuracy = classes ? 100.0 * static_cast<double>(correct) / n : -1;
    e.samples_per_s = static_cast<double>(samples) / std::max(seconds_since(start), 1e-9);
    e.tokens_per_s = e.samples_per_s * static_cast<double>(positions);
    const auto slowest = std::max_element(busy.begin(), busy.end());
    if (slowest == busy.end() || *slowest <= 0) return;
    e.slowest_rank = slowest - busy.begin();
    const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
    e.wait = 1 - sum / (static_cast<double>(busy.size()) * *slowest);
  }
  void keep(RunCounters& c) const {
    c.unreported_loss = loss;
    c.unreported_weight = weight;
    c.unreported_correct = correct;
    c.unreported_counted = counted;
  }
};

// What an evaluation gets wrong: counts of predicted against true classes, and the worst samples. Written to
// evaluation.json.

// Observes the batches of an evaluation, in sample order. Supports targets of one class per sample, or values; no
// texts.
class Examination {
 public:
  // nullptr if the targets are not supported.
  static std::unique_ptr<Examination> of(const Dataset& data, const RunConfig& config);
  // Discards earlier results and returns the hook for one evaluation.
  OutputHook begin();
  // Results of the last evaluation, which `event` describes.
  std::string json(const EvalEvent& event) const;

 private:
  struct Sample {
    double value = 0;  // error; larger is worse
    int64_t index = 0, label = -1, predicted = -1;
  };
  Examination(const Dataset& data, const RunConfig& config) : data_(data), config_(config) {}
  void add(const Tensor& outputs, const Tensor& target);
  void add_class(const float* scores, int64_t count, int64_t label);
  void keep(const Sample& sample);

  const Dataset& data_;
  const RunConfig& config_;
  int64_t seen_ = 0;
  std::vector<int64_t> confusion_;  // [true class, predicted class]; empty for more than kMostClasses classes
  std::vector<Sample> worst_;       // worst first
};

// run.json: the environment of a run, once per start, and its table of layers. Read by reports, beside the metrics.

// Appends this start or resume, at the learner's step. Logs a warning if the file cannot be read or written.
void record_session(const std::string& folder, const RunConfig& config, Learner& learner);
// Stores the current table of layers. Errors as above.
void record_model(const std::string& folder, Learner& learner);

// {"commit", "branch", "changed" (number of tracked files with changes)} of the git repository that contains the
// current folder, as JSON; "null" if there is no repository or no git.
std::string git_state();

}  // namespace detail

// What the ranks of a run agree on. All calls are made by all ranks in the same order; with a single one they return
// what they are given.
class Trainer::Ranks {
 public:
  explicit Ranks(const Trainer& trainer) : t_(trainer) {}
  int64_t rank() const { return t_.communicator_ ? t_.communicator_->rank() : 0; }
  // Throws Error that names both ranks and both values if version, configuration, data, initial values or counters of
  // two of them differ. Logs a warning if kernels do that give other bits.
  void compare() const;
  // Throws Error that names ranks and tensor if models have come apart: codes, buffers, masters that all ranks have.
  void compare_models() const;
  // Whether it is true on one of them.
  bool any(bool own) const { return largest(own ? 1 : 0) != 0; }
  int64_t largest(int64_t own) const;
  // The value of rank 0.
  int64_t of_first(int64_t own) const;
  std::string of_first(const std::string& own) const;
  // The samples of the window that ended last, which the last rank with a part in it has; `own`: those of this one.
  Tensor last_samples(const Tensor& own) const;
  // Ends all other ranks with this error.
  void cancel(const std::exception& error) const;

 private:
  const Trainer& t_;
};

// The files of a run that hold its model: checkpoints and the report.
class Trainer::Files {
 public:
  // All must outlive the files. Without a folder (""; metrics is nullptr) nothing is saved.
  Files(Trainer& trainer, const std::string& folder, const TrainHooks& hooks, MetricsLog* metrics)
      : t_(trainer), folder_(folder), hooks_(hooks), metrics_(metrics) {}

  // Writes <name>.safetensors, "last" or "best"; with "last" those that checkpoint.keep and train.ema ask for.
  void save(std::string_view name);
  // Whether last.safetensors is of this step: not in a run that goes on from best.safetensors, and perhaps does no
  // more. True without a folder.
  bool last_is_here() const;
  // report.html. Failing to write it must not fail the run.
  void write_report();

 private:
  void write(std::string_view name, bool average = false);
  void keep_checkpoint();

  Trainer& t_;
  const std::string& folder_;
  const TrainHooks& hooks_;
  MetricsLog* const metrics_;
};

// The evaluations of a run: their results, which model is the best so far, and whether the run stops early.
class Trainer::Evaluations {
 public:
  // Provided by the run; must outlive the evaluations.
  struct Run {
    const std::string& folder;  // empty: nothing is written
    bool kept = false;          // a rank has a folder
    const TrainHooks& hooks;
    MetricsLog* metrics;  // nullptr: no metrics log
    std::function<bool()> cut;
    std::function<void()> save_best;
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
