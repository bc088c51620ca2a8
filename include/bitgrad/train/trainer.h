// Trainer: the loop of a run over epochs, evaluations and checkpoints. Owns nothing numeric: that is the Learner's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/train/checkpoint.h"
#include "bitgrad/train/config.h"
#include "bitgrad/train/learner.h"
#include "bitgrad/train/metric.h"
#include "bitgrad/train/quant_monitor.h"

namespace bitgrad {

namespace detail {
class ResidentData;
class Examination;
}  // namespace detail

// The phases of quantization of a configuration; an epoch has so many microbatches. Without quant.phases one phase that
// quant.recipe, first, last and rules make; empty where there are none.
std::vector<QuantPhase> quant_phases(const RunConfig& config, int64_t microbatches_per_epoch);
// The form of a data set's samples, and the model of a configuration for samples of a form. A model none of whose
// layers looks at axes takes vectors.
Form input_form(const Dataset& data);
ModelSpec model_spec(const RunConfig& config, const Form& input);
// The learner of a configuration: model, loss, optimizer, schedule, phases, layouts. `input` is the form of a sample,
// `outputs` the elements along the last axis of the model's output (0: any number), `train_size` the samples of an
// epoch. Throws ConfigError at the layer that does not fit.
std::unique_ptr<Learner> build_learner(const RunConfig& config, const Form& input, int64_t outputs, int64_t train_size);
// The same for a data set, whose targets the outputs must fit.
std::unique_ptr<Learner> build_learner(const RunConfig& config, const Dataset& data);
// The same, to evaluate on `data`, which may have fewer classes than the network has scores: those of data.test, say.
// form: of the file that its numbers will come from; a layer that the file has no such matrix for is Error(kData),
// before memory is asked for.
std::unique_ptr<Learner> build_evaluator(const RunConfig& config, const Dataset& data, const FileForm* form = nullptr);
// The same with the numbers of a file: a checkpoint, in its phase, or a model (train/checkpoint.h), converted.
std::unique_ptr<Learner> load_evaluator(const RunConfig& config, const Dataset& data, const std::string& file);
// The data set of a section of `config` (config.data.train, valid or test). Of data.valid {fraction: f} that part of
// data.train, and config.data.train itself is the rest. of_model: the tokenizer of the model that will read it, used in
// place of one that is made of the training text.
std::unique_ptr<Dataset> open_dataset(const RunConfig& config, const DatasetConfig& section,
                                      std::shared_ptr<const Tokenizer> of_model = {});
// What a model is measured on: data.test, else data.valid, else data.train; and the name of that section.
std::unique_ptr<Dataset> open_evaluation_dataset(const RunConfig& config,
                                                 std::shared_ptr<const Tokenizer> of_model = {});
std::string evaluation_split(const RunConfig& config);

// What device.kind and device.index name; it may be absent. Builders, evaluate and the rest of the library act on the
// current device: a program opens DeviceGuard guard(device_of(config)) around them. The Trainer does so itself.
Device device_of(const RunConfig& config);
// Applies device.threads and run.bits to the process.
void apply_run_settings(const RunConfig& config);

// Mean loss over what counts, accuracy in percent (-1: targets are values), and every metric that fits the task. On the
// learner's device. Error(kNonFinite) where a loss is not finite.
struct Evaluation {
  double loss = 0, accuracy = -1;
  int64_t samples = 0;
  MetricValues metrics = {};
};
Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch);

// What the trainer tells while it runs.
struct TrainEvent {
  int64_t step = 0, epoch = 0;                // done
  int64_t steps_total = 0, epochs_total = 0;  // of the whole run; an epoch that is begun counts
  int64_t microbatch = 0, microbatches_total = 0;
  double loss = 0, accuracy = 0;  // means since the last event of this kind; accuracy -1: targets are values
  double lr = 0;                  // of the optimizer step just done
  double samples_per_s = 0;
  double tokens_per_s = 0;  // positions that the model reads; 0: samples are no ids
  // Multiplications of a step of training by the table of layers, in 10^9 a second: three times those of a forward pass
  // (backward multiplies twice as much), what recomputation adds not counted.
  double gmacs_per_s = 0;
  double mfu = -1;  // those in percent of log.peak; -1: no peak is given
  double seconds = 0, eta_seconds = 0;
};
struct EvalEvent {
  std::string split = {};
  int64_t epoch = 0, step = 0;
  double loss = 0, accuracy = 0;
  bool best = false;
  MetricValues metrics = {};  // all that fit the task
  std::string metric = {};    // the one that picks the best model
  double value = 0;           // of it
  bool final = false;         // data.test, once at the end of a run with data.valid: of the best model
};
enum class StopRequest { kNone, kInterrupt, kTerminate };
struct TrainHooks {
  std::function<void(const TrainEvent&)> on_tick = {};  // each optimizer step; for progress bars, must be cheap
  std::function<void(const EvalEvent&)> on_eval = {};
  std::function<void(const QuantEvent&)> on_quant = {};  // log.quantization: one a layer
  std::function<void(const std::string& path)> on_checkpoint = {};
  // A phase of quantization has begun, after its first step: "phase 1 from step 300: quantization on, ...".
  std::function<void(const std::string& phase)> on_phase = {};
  std::function<StopRequest()> stop_requested = {};  // polled every microbatch; the open window is finished first
  // Polled between the batches of an evaluation. true: it is cut short, and the run saved and ended as stop_requested
  // says (kNone: as kInterrupt); a resumed run repeats the evaluation.
  std::function<bool()> cut_evaluation = {};
};

struct TrainOutcome {
  StopRequest stopped = StopRequest::kNone;  // kNone: ran to the end
  RunCounters counters = {};
  std::string state_hash = {};
  double seconds = 0;  // of the whole run, also before a resume
  int64_t optimizer_steps = 0;
  // Of the run's end. With data.test and data.valid: of the best model (without a folder: of the last) on data.test;
  // with one of them: at the last step, on it; with neither: there, on a part of data.train.
  std::optional<Evaluation> evaluation = {};
  std::string evaluated = {};    // the section of those: "test", "valid", "train"; empty: nothing
  int64_t evaluated_step = 0;    // of the model
  std::string metric = {};       // what picks the best model
  std::string selected_on = {};  // where it does: "valid", "test"; empty: nowhere
  std::string ended_by = {};     // "train.stop", "train.early_stop", "interrupt", "terminate", "error"
  std::string ended = {};        // the same as a sentence
};

class Trainer {
 public:
  // Opens the data and builds the learner on the configuration's device; a quant.budget becomes rules first
  // (train/budget.h). Applies device.threads and run.bits to the process.
  explicit Trainer(RunConfig config);
  // The same on data sets that a program gives in place of data.train and data.test, which may be nullptr. `valid`: in
  // place of data.valid; nullptr: of data.valid {fraction: f} that part of `train`.
  Trainer(RunConfig config, std::unique_ptr<Dataset> train, std::unique_ptr<Dataset> test,
          std::unique_ptr<Dataset> valid = nullptr);
  ~Trainer();

  // A run begins in one of two ways, before anything is trained or evaluated:
  // - start: with first numbers of model.init_from, where it is given; run and evaluate_test do it if nobody did;
  // - resume: goes on from a checkpoint of the same configuration, in its phase.
  void start();
  void resume(const std::string& checkpoint);
  // Trains to train.stop. `folder`: an existing run folder, which gets the files of docs/file_format.md, "Run folder";
  // empty: nothing is written. A model is saved, and the run ends without an Error, only where parameters, moments and
  // statistics are finite, and the loss: over the data that select the best model if they were evaluated at that step,
  // else over the microbatch before it. Else Error(kNonFinite). A run with a folder and with neither data.valid nor
  // data.test that reaches its end is evaluated on a part of data.train.
  TrainOutcome run(const std::string& folder, const TrainHooks& hooks = {});
  // data.test, else data.valid, else data.train.
  Evaluation evaluate_test();

  Learner& learner() { return *learner_; }
  // Without quant.budget: with the rules that it came to.
  const RunConfig& config() const { return config_; }
  // What the budget came to (BudgetPlan::table); empty without one.
  const std::string& budget_table() const { return budget_table_; }
  const RunCounters& counters() const { return counters_; }
  // What picks the best model: train.best, else accuracy for one class a sample, else loss.
  const BestRule& best() const { return best_; }
  // Of that metric, of the best model; none: nothing was evaluated.
  std::optional<double> best_value() const;
  int64_t total_microbatches() const { return total_microbatches_; }
  // "valid" or "test", whichever picks the best model; empty: nothing is evaluated while the run trains.
  std::string selected_on() const { return valid_data_ ? "valid" : test_data_ ? "test" : ""; }
  // Whether there is nothing left to train: train.stop is reached, or train.early_stop ended the run.
  bool ended() const;

 private:
  class Loop;
  // These give nothing where stop() ends them.
  using Stop = std::function<bool()>;
  std::optional<Evaluation> evaluate_on(const std::string& section, const Stop& stop);
  // On the first samples of data.train, a sixteenth of those that the run trained on and at least a microbatch: about 2
  // % of its time.
  std::optional<Evaluation> evaluate_training_part(const Stop& stop);
  void open_data(std::unique_ptr<Dataset> valid);
  void place_data();
  void name_classes();
  void check_data() const;
  // Warns where a saved configuration is not this one.
  void compare_run(const CheckpointHeader& header, const std::string& checkpoint) const;
  bool stops_early() const;
  std::string budget_table_;
  RunConfig config_;
  std::string config_yaml_;
  std::unique_ptr<Dataset> train_data_, valid_data_, test_data_;
  std::string tokenizer_;                                     // as files hold it; empty: none
  std::vector<std::shared_ptr<const Transform>> transforms_;  // of data.train
  std::unique_ptr<detail::ResidentData> train_resident_, valid_resident_, test_resident_;
  std::unique_ptr<detail::Examination> examination_;  // of the evaluations of a run that reports, on examined_
  std::string examined_;                              // "valid", "test"
  std::string residence_;                             // where the data are, for the log
  std::unique_ptr<Learner> learner_;
  RunCounters counters_;
  BestRule best_, early_stop_;  // early_stop_: of train.early_stop
  bool started_ = false;
  std::string first_numbers_;  // where they came from, for the log
  int64_t microbatches_per_epoch_ = 0, total_microbatches_ = 0;
};

}  // namespace bitgrad
