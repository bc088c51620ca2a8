// Trainer: the loop of a run over epochs, evaluations and checkpoints. All numerics are in the Learner.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/dist/communicator.h"
#include "bitgrad/run/build.h"
#include "bitgrad/run/quant_monitor.h"
#include "bitgrad/task/metric.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

namespace detail {
class ResidentData;
}  // namespace detail

// Events and hooks of a training run.
struct TrainEvent {
  int64_t step = 0, epoch = 0;                // completed
  int64_t steps_total = 0, epochs_total = 0;  // of the whole run; a partial epoch counts
  int64_t microbatch = 0, microbatches_total = 0;
  // means since the last event of this kind; accuracy in percent, -1: targets are values
  double loss = 0, accuracy = 0;
  double lr = 0;              // of the optimizer step just completed
  double gradient_norm = -1;  // its global norm before clipping; -1: not measured (optim.clip_norm, log.gradient_norm)
  double samples_per_s = 0;
  double tokens_per_s = 0;  // positions that the model reads; 0 if samples are not ids
  // 10^9 multiply-accumulates per second of training, from the layer table: three times the forward pass (backward
  // counts twice); recomputation is not counted.
  double gmacs_per_s = 0;
  double mfu = -1;  // gmacs_per_s in percent of log.peak; -1: no peak set
  // On several ranks: the one whose microbatches took longest, and the part of that time that a rank waits for it on
  // average, in [0, 1); -1: one rank.
  int64_t slowest_rank = -1;
  double wait = 0;
  int64_t skipped_windows = 0;  // of the run so far: windows in which no target counts
  double seconds = 0, eta_seconds = 0;
};
struct EvalEvent {
  std::string split = {};
  int64_t epoch = 0, step = 0;
  double loss = 0, accuracy = 0;
  bool best = false;
  MetricValues metrics = {};  // all metrics that fit the task
  std::string metric = {};    // the one that selects the best model
  double value = 0;           // its value
  bool final = false;         // final test of the best model on data.test, in runs that also have data.valid
  std::optional<Evaluation> average = {};  // of the average of train.ema on the same samples
};
enum class StopRequest { kNone, kInterrupt, kTerminate };
struct TrainHooks {
  // after each optimizer step, e.g. for progress bars; must be cheap
  std::function<void(const TrainEvent&)> on_tick = {};
  std::function<void(const EvalEvent&)> on_eval = {};
  std::function<void(const QuantEvent&)> on_quant = {};  // for log.quantization, one per layer
  std::function<void(const std::string& path)> on_checkpoint = {};
  // A quantization phase has begun, called after its first step: "phase 1 from step 300: quantization on, ...".
  std::function<void(const std::string& phase)> on_phase = {};
  std::function<StopRequest()> stop_requested = {};  // polled every microbatch; the current window is completed first
  // Polled between batches of an evaluation. If true, the evaluation is cut short and the run is saved and ends as
  // stop_requested says (kNone: as kInterrupt); a resumed run repeats the evaluation.
  std::function<bool()> cut_evaluation = {};
};

struct TrainOutcome {
  StopRequest stopped = StopRequest::kNone;  // kNone: ran to its end
  RunCounters counters = {};
  std::string state_hash = {};
  double seconds = 0;  // of the whole run, including time before a resume
  int64_t optimizer_steps = 0;
  // The evaluation at the end of the run. With data.test and data.valid: of the best model (without a folder, the last
  // one) on data.test. With only one of them: at the last step, on that one. With neither: at the last step on a part
  // of data.train (only with a folder).
  std::optional<Evaluation> evaluation = {};
  std::string evaluated = {};    // section of `evaluation`: "test", "valid", "train"; empty: none
  int64_t evaluated_step = 0;    // step of the evaluated model
  std::string metric = {};       // the one that selects the best model
  std::string selected_on = {};  // the section it is measured on: "valid", "test"; empty: none
  int64_t skipped_windows = 0;   // windows in which no target counts
  std::string ended_by = {};     // "train.stop", "train.early_stop", "interrupt", "terminate", "error"
  std::string ended = {};        // ended_by as a sentence
  bool packed = false;           // weights of the evaluated model are codes
  // With quant.phases: the phase at the end, and the step since which the model has its form. Only evaluations since
  // then were compared for the best model.
  std::optional<int64_t> phase = {}, form_since = {};
};

// The configuration with which `ranks` ranks begin: steps of one microbatch are split into one for each rank
// (batch.micro; quant.requantize_every stays as many steps), with a warning that names the twin on one rank. Any other
// configuration, and one whose batch.global the ranks do not divide, is returned as it is.
RunConfig split_for_ranks(RunConfig config, int64_t ranks);
// Throws Error, as Trainer::set_ranks, unless `ranks` ranks can share the steps of this configuration.
void check_for_ranks(const RunConfig& config, int64_t ranks);

class Trainer {
 public:
  // Opens the data and builds the learner on the configuration's device. A quant.budget must have become rules
  // (resolve_budget, tools/budget.h). Applies device.threads and run.bits to the process.
  explicit Trainer(RunConfig config);
  // The same with data sets given by the program instead of data.train and data.test; `test` may be nullptr. `valid`
  // replaces data.valid; if nullptr, data.valid is opened, or with {fraction: f} split off `train`.
  Trainer(RunConfig config, std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> test,
          std::unique_ptr<Dataset> valid = nullptr);
  ~Trainer();

  // A run begins in one of two ways, before anything is trained or evaluated:
  // - start: with initial values from model.init_from, if set. Called by run and evaluate_held_out if needed.
  // - resume: continues from a checkpoint of the same configuration, in its phase. Throws Error(kData) if it does not
  //   fit, or if the samples are not those of the saved run; `use_data` makes the latter a warning.
  void start();
  void resume(const std::string& checkpoint, bool use_data = false);
  // Makes this trainer one of several ranks that train one model together; docs/ranks.md. Call on all ranks, before
  // start and resume. Data and initial values must be equal on all, which run compares. The run has the batches, the
  // metrics, the decisions and the bits of a single rank with batch.sum: tree. Only the run of rank 0 may get a folder.
  // An Error of a rank ends all; one of a program outside run must be passed to Communicator::cancel. Throws Error if
  // the ranks cannot share the microbatches of a step, or the configuration cannot run on several ranks.
  void set_ranks(std::shared_ptr<Communicator> ranks);
  // Names the columns of data.train's samples, before it runs: the files of the run then hold the plan of a table
  // (named_table), by which models read tables. Throws Error if the data are a table already, for samples that are ids,
  // and for names that do not fit.
  void name_columns(const std::vector<std::string>& features, std::vector<std::string> targets = {});
  // Trains until train.stop. `folder` is an existing run folder, to which the files of docs/file_format.md, "Run
  // folder", are written; empty: nothing is written. A model is saved, and the run ends without an Error, only if
  // parameters, moments and statistics are finite, and so is the loss: over the data that select the best model if they
  // were evaluated at that step, else over the preceding microbatch. Otherwise throws Error(kNonFinite). A run with a
  // folder but neither data.valid nor data.test ends with an evaluation on a part of data.train.
  TrainOutcome run(const std::string& folder, const TrainHooks& hooks = {});
  // Evaluates on data.test, else data.valid, else data.train: the section held_out(). Several ranks call it together.
  Evaluation evaluate_held_out();
  std::string held_out() const { return test_data_ ? "test" : valid_data_ ? "valid" : "train"; }

  Learner& learner() { return *learner_; }
  const RunConfig& config() const { return config_; }
  const RunCounters& counters() const { return counters_; }
  // The plan of data.train's table (table_text); empty if it is none.
  const std::string& table_record() const { return table_; }
  // What selects the best model: train.best, else accuracy for one class per sample, else loss.
  const BestRule& best() const { return rules_.best; }
  // That metric's value for the best model; nullopt: nothing was evaluated.
  std::optional<double> best_value() const;
  int64_t total_microbatches() const { return total_microbatches_; }
  // Those of them that were read, skipped windows included.
  int64_t done_microbatches() const { return learner_->state().microbatch + learner_->skipped().microbatches; }
  // The section that selects the best model, "valid" or "test"; empty: no evaluations during training.
  std::string selected_on() const { return valid_data_ ? "valid" : test_data_ ? "test" : ""; }
  // Whether training is complete: train.stop was reached, or train.early_stop ended the run, and no evaluation is due.
  bool ended() const;

 private:
  class Loop;
  class Files;
  class Evaluations;
  class Ranks;
  // The rules of train.best, of train.early_stop and of schedule plateau (the last two in runs that have them).
  struct Rules {
    BestRule best = {}, early_stop = {}, plateau = {};
  };
  // Throws if a metric does not fit the task.
  static Rules rules_of(const RunConfig& config, const MetricTask& task);
  // The functions below return nullopt if stop() ends them.
  using Stop = std::function<bool()>;
  std::optional<Evaluation> evaluate_on(const std::string& section, const Stop& stop, const OutputHook& hook = {});
  // Evaluates the first samples of data.train, a sixteenth of the number trained on but at least one microbatch: about
  // 2 % of the run's time.
  std::optional<Evaluation> evaluate_training_part(const Stop& stop);
  void warn_of_wire() const;
  void make_learner();
  void open_data(std::unique_ptr<Dataset> valid);
  void place_data();
  void name_classes();
  // Warns if a saved configuration differs from this one.
  void compare_run(const CheckpointHeader& header, const std::string& checkpoint) const;
  std::map<std::string, const Dataset*> data_sets() const;  // by section
  void record_samples();
  std::map<std::string, std::string> changed_samples(const CheckpointHeader& header) const;
  void compare_samples(const CheckpointHeader& header, const std::string& checkpoint, bool use_data);
  void forget_measured();
  void follow_length(const std::string& checkpoint, int64_t done, bool use_data);
  bool stops_early() const;
  void set_rates();
  // The phase with which the last form of the model begins that the run reaches.
  int64_t last_form() const;
  // The model has another form now: the best model and the patience of train.early_stop start anew.
  void begin_form();
  RunConfig config_;
  std::string config_yaml_;
  std::unique_ptr<Dataset> train_data_, valid_data_, test_data_;
  std::string tokenizer_, table_;                             // serialized for files; empty: none
  std::map<std::string, SamplesRecord> samples_;              // by section, once a run has begun
  std::vector<std::shared_ptr<const Transform>> transforms_;  // of data.train
  std::unique_ptr<detail::ResidentData> train_resident_, valid_resident_, test_resident_;
  std::string residence_;                       // where the data reside, for the log
  std::shared_ptr<Communicator> communicator_;  // nullptr: a single rank
  std::unique_ptr<Learner> learner_;
  RunCounters counters_;
  Rules rules_;
  bool started_ = false;
  std::string init_note_;  // their source, for the log
  int64_t microbatches_per_epoch_ = 0, total_microbatches_ = 0;
};

}  // namespace bitgrad
