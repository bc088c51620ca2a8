#include "bitgrad/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/kernels/row.h"
#include "bitgrad/train/metrics.h"

namespace bitgrad {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A batch's numbers as a tensor; the same memory is used again while the size stays.
void to_tensor(const Batch& batch, Tensor& x) {
  const Shape shape{batch.size, batch.features};
  if (!x.defined() || x.shape() != shape) x = Tensor::empty(shape, dtypes::fp32, MemoryKind::kBatch);
  std::memcpy(x.data(), batch.x, static_cast<size_t>(x.bytes()));
}
std::span<const int32_t> labels_of(const Batch& batch) { return {batch.labels, static_cast<size_t>(batch.size)}; }

// Sums of steps since the last report.
struct Interval {
  double loss = 0;
  int64_t correct = 0, samples = 0;
  Clock::time_point start = Clock::now();
  void add(const StepResult& r) {
    loss += r.loss;
    correct += r.correct;
    samples += r.samples;
  }
  void report(TrainEvent& e) const {
    const double n = static_cast<double>(std::max<int64_t>(samples, 1));
    e.loss = loss / n;
    e.accuracy = 100.0 * static_cast<double>(correct) / n;
    e.samples_per_s = n / std::max(seconds_since(start), 1e-9);
  }
};

// Which updates run inside backward, and why the others do not.
void log_fused_updates(const Learner& learner) {
  std::map<std::string, std::string> paths;  // by reason; empty: fused
  for (const Optimizer::FusedUpdate& u : learner.fused_updates()) {
    std::string& list = paths[u.why_not];
    list += (list.empty() ? "" : ", ") + u.path;
  }
  for (const auto& [why_not, list] : paths)
    log(LogLevel::kInfo, why_not.empty() ? concat("updated inside backward: ", list)
                                         : concat("updated after backward: ", list, ": ", why_not));
}

}  // namespace

Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch_size) {
  LoaderOptions options;
  options.micro = batch_size;
  options.shuffle = false;
  options.end_epoch = 1;
  Loader loader(data, options);
  Batch batch;
  Tensor x;
  Evaluation e;
  double loss = 0;
  int64_t correct = 0;
  while (loader.next(batch)) {
    to_tensor(batch, x);
    const StepResult r = learner.evaluate(x, labels_of(batch));
    loss += r.loss;
    correct += r.correct;
    e.samples += r.samples;
  }
  e.loss = loss / static_cast<double>(e.samples);
  e.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(e.samples);
  return e;
}

void apply_run_settings(const RunConfig& config) {
  if (config.device.threads) set_num_threads(static_cast<int>(*config.device.threads));
  set_bits_mode(config.run.bits == "strict" ? BitsMode::kStrict : BitsMode::kFast);
}

Trainer::Trainer(RunConfig config) : config_(std::move(config)), config_yaml_(to_yaml(config_)) {
  apply_run_settings(config_);
  train_data_ = open_dataset(config_, config_.data.train);
  if (config_.data.test) test_data_ = open_dataset(config_, *config_.data.test);
  if (test_data_)
    require(test_data_->features() == train_data_->features(), "data", "data.train has samples of ",
            train_data_->features(), " numbers, data.test of ", test_data_->features());
  if (test_data_)
    require(test_data_->classes() <= train_data_->classes(), "data", "data.test has ", test_data_->classes(),
            " classes, data.train ", train_data_->classes());
  learner_ = build_learner(config_, train_data_->features(), train_data_->classes(), train_data_->size());
  microbatches_per_epoch_ = (train_data_->size() + config_.batch.micro - 1) / config_.batch.micro;
  const Quantity& stop = config_.train.stop;
  total_microbatches_ = stop.unit == Quantity::Unit::kEpochs ? stop.value * microbatches_per_epoch_
                                                             : stop.value * config_.batch.accumulate();
}

Trainer::~Trainer() = default;

void Trainer::resume(const std::string& checkpoint) {
  const CheckpointHeader header = read_checkpoint_header(checkpoint);
  const int64_t samples = train_data_->size();
  if (header.counters.position > samples)
    fail_with(ErrorCode::kData, "checkpoint", checkpoint, ": position ", header.counters.position,
              " of an epoch lies beyond the ", samples, " samples of data.train. Was the run started on other data?");
  load_checkpoint(checkpoint, *learner_);
  counters_ = header.counters;
  if (header.config != config_yaml_)
    log(LogLevel::kWarning, "resumed with another configuration than the run that saved had: not bit for bit");
  if (header.kernel_hash != kernel_table_hash() && bits_mode() == BitsMode::kFast)
    log(LogLevel::kWarning,
        "resumed with other kernels than the run that saved had: not bit for bit (run.bits: strict does not depend on "
        "the machine)");
}

Evaluation Trainer::evaluate_test() {
  return evaluate(*learner_, test_data_ ? *test_data_ : *train_data_, config_.train.eval.batch);
}

// The loop of one run.
class Trainer::Loop {
 public:
  Loop(Trainer& trainer, const std::string& folder, const TrainHooks& hooks)
      : t_(trainer), folder_(folder), hooks_(hooks) {
    if (!folder_.empty()) metrics_ = std::make_unique<MetricsLog>(folder_, t_.learner_->state().step);
  }

  TrainOutcome run() {
    LoaderOptions options;
    options.micro = t_.config_.batch.micro;
    options.seed = static_cast<uint64_t>(t_.config_.run.seed);
    options.epoch = t_.counters_.epoch;
    options.position = t_.counters_.position;
    Loader loader(*t_.train_data_, options);
    Batch batch;
    Tensor x;
    // A request to stop still finishes the open window, so that the state is one that a checkpoint can hold.
    while (learner().state().microbatch < t_.total_microbatches_ &&
           (stop_ == StopRequest::kNone || learner().window_samples() > 0)) {
      loader.next(batch);
      to_tensor(batch, x);
      StepResult r = learner().microbatch(x, labels_of(batch));
      const bool last = learner().state().microbatch >= t_.total_microbatches_;
      if (last) {
        learner().flush();
        r.stepped = true;
      }
      t_.counters_.epoch = loader.epoch();
      t_.counters_.position = loader.position();
      interval_.add(r);
      if (hooks_.stop_requested && stop_ == StopRequest::kNone) stop_ = hooks_.stop_requested();
      if (r.stepped && !std::exchange(told_, true)) log_fused_updates(learner());
      if (r.stepped) boundary(last);
    }
    return finish();
  }

  // What a run that ended with an error leaves in its folder, if the folder still takes it.
  void failed(const std::exception& error) {
    if (folder_.empty()) return;
    try {
      metrics_->flush();
      TrainOutcome outcome;
      outcome.seconds = seconds_before_ + seconds_since(start_);
      outcome.counters = t_.counters_;
      outcome.optimizer_steps = learner().state().step;
      write_summary(folder_, outcome, "failed", error.what());
    } catch (const std::exception& second) {
      log(LogLevel::kError, second.what());
    }
  }

 private:
  Learner& learner() { return *t_.learner_; }

  // Everything that happens between optimizer steps: reports, evaluation, checkpoints.
  void boundary(bool last) {
    const int64_t step = learner().state().step;
    if (hooks_.on_tick) hooks_.on_tick(event());
    if (last || due(t_.config_.log_every)) report();
    if (t_.test_data_ && (last || due(t_.config_.train.eval.every))) evaluate_test();
    const bool stopping = stop_ != StopRequest::kNone;
    if (!folder_.empty() && (last || stopping || due(t_.config_.checkpoint_every)) && step != saved_step_) {
      save(folder_ + "/last.safetensors");
      saved_step_ = step;
    }
    boundary_epoch_ = t_.counters_.epoch;
  }

  bool due(const Quantity& every) const {
    if (every.unit == Quantity::Unit::kSteps) return t_.learner_->state().step % every.value == 0;
    return t_.counters_.epoch / every.value > boundary_epoch_ / every.value;  // one window may end several epochs
  }

  void evaluate_test() {
    const Clock::time_point before = Clock::now();
    const Evaluation result = t_.evaluate_test();
    evaluation_ = result;
    evaluated_step_ = learner().state().step;
    RunCounters& c = t_.counters_;
    EvalEvent e;
    e.split = "test";
    e.epoch = c.epoch;
    e.step = learner().state().step;
    e.loss = result.loss;
    e.accuracy = result.accuracy;
    e.best = result.accuracy > c.best_accuracy;
    c.last_accuracy = result.accuracy;
    if (e.best) {
      c.best_accuracy = result.accuracy;
      c.best_epoch = c.epoch;
    }
    if (metrics_) metrics_->write(e);
    if (e.best && !folder_.empty()) save(folder_ + "/best.safetensors");
    if (hooks_.on_eval) hooks_.on_eval(e);
    interval_.start += Clock::now() - before;  // samples/s are those of training
  }

  void save(const std::string& path) {
    if (metrics_) metrics_->flush();
    t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    save_checkpoint(path, learner(), t_.counters_, t_.config_yaml_);
    if (hooks_.on_checkpoint) hooks_.on_checkpoint(path);
  }

  TrainEvent event() {
    TrainEvent e;
    e.step = learner().state().step;
    e.epoch = t_.counters_.epoch;
    e.microbatch = learner().state().microbatch;
    e.microbatches_total = t_.total_microbatches_;
    e.lr = static_cast<double>(learner().learning_rate(std::max<int64_t>(e.step - 1, 0)));
    e.seconds = seconds_since(start_);
    const double done = static_cast<double>(e.microbatch - first_microbatch_);
    e.eta_seconds = done > 0 ? e.seconds / done * static_cast<double>(t_.total_microbatches_ - e.microbatch) : 0;
    interval_.report(e);
    return e;
  }

  void report() {
    if (metrics_) metrics_->write(event());
    interval_ = Interval();
  }

  TrainOutcome finish() {
    TrainOutcome outcome;
    outcome.stopped = learner().state().microbatch >= t_.total_microbatches_ ? StopRequest::kNone : stop_;
    outcome.seconds = t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    outcome.counters = t_.counters_;
    outcome.optimizer_steps = learner().state().step;
    outcome.state_hash = state_hash(learner(), t_.counters_);
    if (evaluated_step_ == outcome.optimizer_steps) outcome.evaluation = evaluation_;
    if (!folder_.empty())
      write_summary(folder_, outcome, outcome.stopped == StopRequest::kNone ? "finished" : "interrupted");
    return outcome;
  }

  Trainer& t_;
  const std::string folder_;
  const TrainHooks& hooks_;
  std::unique_ptr<MetricsLog> metrics_;
  Interval interval_;
  Clock::time_point start_ = Clock::now();
  int64_t first_microbatch_ = t_.learner_->state().microbatch;
  int64_t saved_step_ = -1, evaluated_step_ = -1;
  Evaluation evaluation_;                        // of that step
  int64_t boundary_epoch_ = t_.counters_.epoch;  // at the last step boundary
  const double seconds_before_ = t_.counters_.train_seconds;
  bool told_ = false;  // which updates are fused
  StopRequest stop_ = StopRequest::kNone;
};

TrainOutcome Trainer::run(const std::string& folder, const TrainHooks& hooks) {
  Loop loop(*this, folder, hooks);
  try {
    return loop.run();
  } catch (const std::exception& e) {
    log(LogLevel::kError, e.what());
    loop.failed(e);
    throw;
  }
}

}  // namespace bitgrad
