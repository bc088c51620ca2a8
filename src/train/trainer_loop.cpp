// The loop of a run: microbatches, and between optimizer steps reports, evaluations and checkpoints.
#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/train/html_report.h"
#include "bitgrad/train/metrics.h"
#include "bitgrad/train/trainer.h"
#include "train/batch_feed.h"
#include "train/checkpoint/pieces.h"
#include "train/evaluation.h"
#include "train/examination.h"
#include "train/interval.h"
#include "train/lengths.h"
#include "train/phases.h"
#include "train/run_record.h"

namespace bitgrad {

using detail::Clock;
using detail::Interval;
using detail::seconds_since;

namespace {

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

void log_lines(const std::string& text) {
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) log(LogLevel::kInfo, line);
}

}  // namespace

// The loop of one run.
class Trainer::Loop {
 public:
  Loop(Trainer& trainer, const std::string& folder, const TrainHooks& hooks)
      : t_(trainer), folder_(folder), hooks_(hooks) {
    const RunCounters& c = t_.counters_;
    const WrittenSum saved{c.metrics_bytes, c.metrics_crc};
    if (!folder_.empty() && t_.config_.log_report) {
      detail::record_session(folder_, t_.config_, learner());
      examine(t_.selected_on());
    }
    if (!folder_.empty())
      metrics_ = std::make_unique<MetricsLog>(folder_, t_.learner_->state().step, saved, metrics_outputs());
    if (t_.config_.log_quantization && (metrics_ || hooks_.on_quant)) {
      monitor_ = std::make_unique<QuantMonitor>(learner());
      monitor_->expect(microbatches_to(*t_.config_.log_quantization));
    }
  }

  TrainOutcome run() {
    if (!t_.config_.origin.note.empty()) log(LogLevel::kInfo, t_.config_.origin.note);
    log_lines(t_.budget_table_);
    if (!t_.first_numbers_.empty()) log(LogLevel::kInfo, t_.first_numbers_);
    log_lines(t_.residence_);
    log(LogLevel::kInfo, concat("phase ", learner().phase(), " at step ", learner().state().step));
    if (const PrepareSpec* spec = detail::spec_of_now(learner())) detail::log_choices(learner().model(), *spec);
    detail::log_quantization(learner().model());
    warn_of_phases();
    LoaderOptions options;
    options.micro = t_.config_.batch.micro;
    options.seed = static_cast<uint64_t>(t_.config_.run.seed);
    options.epoch = t_.counters_.epoch;
    options.position = t_.counters_.position;
    options.transforms = t_.transforms_;
    options.augment = {t_.config_.data.train.augment.crop_pad, t_.config_.data.train.augment.flip};
    feed_ = std::make_unique<detail::BatchFeed>(learner(), *t_.train_data_, options, t_.train_resident_.get());
    if (t_.counters_.evaluation_due) repeat_evaluation();
    // A request to stop still finishes the open window, so that the state is one that a checkpoint can hold.
    while (learner().state().microbatch < t_.total_microbatches_ && !t_.stops_early() &&
           (stop_ == StopRequest::kNone || learner().window_samples() > 0)) {
      feed_->next();
      StepResult r = learner().microbatch(feed_->x(), feed_->target(), feed_->counted());
      const bool last = learner().state().microbatch >= t_.total_microbatches_;
      if (last) {
        learner().flush();
        r.stepped = true;
      }
      t_.counters_.epoch = feed_->epoch();
      t_.counters_.position = feed_->position();
      interval_.add(r);
      ask_to_stop();
      if (r.stepped && told_phase_ != learner().phase()) announce_phase(std::exchange(told_phase_, learner().phase()));
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
      outcome.metric = t_.best_.metric;
      outcome.optimizer_steps = learner().state().step;
      outcome.selected_on = t_.selected_on();
      outcome.ended_by = "error";
      outcome.ended = error.what();
      write_summary(folder_, outcome, "failed", error.what());
      write_report();
    } catch (const std::exception& second) {
      log(LogLevel::kError, second.what());
    }
  }

 private:
  Learner& learner() { return *t_.learner_; }
  void ask_to_stop() {
    if (hooks_.stop_requested && stop_ == StopRequest::kNone) stop_ = hooks_.stop_requested();
  }
  bool cut() {
    if (!hooks_.cut_evaluation || !hooks_.cut_evaluation()) return false;
    ask_to_stop();
    if (stop_ == StopRequest::kNone) stop_ = StopRequest::kInterrupt;
    return true;
  }

  MetricsOutputs metrics_outputs() const {
    MetricsOutputs outputs{
        .csv = true, .evaluates = !t_.selected_on().empty(), .tensorboard = t_.config_.log_tensorboard};
    for (const Metric* m : metrics())
      if (m->name != "loss" && m->fits({t_.train_data_->target_form(), t_.config_.loss}))
        outputs.metrics.push_back(m->name);
    return outputs;
  }

  // Short runs of a long configuration are common: no error.
  void warn_of_phases() {
    const int64_t accumulate = t_.config_.batch.accumulate();
    const int64_t steps = (t_.total_microbatches_ + accumulate - 1) / accumulate;
    const std::vector<QuantPhase>& phases = learner().phases();
    for (size_t i = 0; i < phases.size(); ++i)
      if (phases[i].from >= steps)
        log(LogLevel::kWarning, concat("quant.phases.", i, " never starts: it begins at step ", phases[i].from,
                                       ", the run ends after ", steps));
  }

  // -1: the run begins in it.
  void announce_phase(int64_t before) {
    log_fused_updates(learner());
    if (before >= 0 && hooks_.on_phase) hooks_.on_phase(detail::phase_text(learner()));
  }

  // Everything that happens between optimizer steps: reports, evaluation, checkpoints.
  void boundary(bool last) {
    const int64_t step = learner().state().step;
    if (hooks_.on_tick) hooks_.on_tick(event());
    if (last || due(t_.config_.log_every)) write_train_line();
    if (monitor_) watch_quantization(last);
    if (!t_.selected_on().empty() && (last || due(t_.config_.train.eval.every))) evaluate();
    const bool ends = last || stop_ != StopRequest::kNone || t_.stops_early();
    const bool saves = !folder_.empty() && (ends || due(t_.config_.checkpoint_every)) && step != saved_step_;
    if ((ends || saves) && evaluated_step_ != step) check_loss();
    if (saves) {
      save(folder_ + "/last.safetensors");
      saved_step_ = step;
    }
    boundary_epoch_ = t_.counters_.epoch;
  }

  bool due(const Quantity& every) const {
    if (every.unit == Quantity::Unit::kSteps) return t_.learner_->state().step % every.value == 0;
    return t_.counters_.epoch / every.value > boundary_epoch_ / every.value;  // one window may end several epochs
  }

  // Microbatches until the next of the events that come `every` so often, or the end of the run.
  int64_t microbatches_to(const Quantity& every) const {
    const StepState& state = t_.learner_->state();
    const int64_t left = t_.total_microbatches_ - state.microbatch;
    if (every.unit == Quantity::Unit::kSteps)
      return std::min(left,
                      detail::microbatches_of(every.value - state.step % every.value, t_.config_.batch.accumulate()));
    const int64_t next = (t_.counters_.epoch / every.value + 1) * every.value;
    return std::min(left, detail::microbatches_of(next, t_.microbatches_per_epoch_) - state.microbatch);
  }

  void watch_quantization(bool last) {
    const Clock::time_point before = Clock::now();
    const Quantity& every = *t_.config_.log_quantization;
    monitor_->stepped();
    if (last || due(every))
      for (const QuantEvent& e : monitor_->report(t_.counters_.epoch, feed_->x())) {
        if (metrics_) metrics_->write(e);
        if (hooks_.on_quant) hooks_.on_quant(e);
      }
    if (!last) monitor_->expect(microbatches_to(every));
    interval_.start += Clock::now() - before;  // samples/s are those of training
  }

  // On what selects the best model; where a request to stop ends it, a resumed run repeats it.
  void evaluate() {
    const Clock::time_point before = Clock::now();
    const auto result = t_.evaluate_on(t_.selected_on(), [this] { return cut(); });
    t_.counters_.evaluation_due = !result;
    if (result) record(*result);
    interval_.start += Clock::now() - before;  // samples/s are those of training
  }

  // The one that ended the run before.
  void repeat_evaluation() {
    evaluate();
    if (t_.ended() && !folder_.empty()) save(folder_ + "/last.safetensors");
  }

  void record(const Evaluation& result) {
    evaluation_ = result;
    evaluated_step_ = learner().state().step;
    RunCounters& c = t_.counters_;
    EvalEvent e = event_of(result, t_.selected_on(), evaluated_step_);
    const std::optional<double> best = t_.best_value();
    e.best = !best || t_.best_.better(e.value, *best);
    c.last_accuracy = result.accuracy;
    if (e.best) {
      c.best_accuracy = result.accuracy;
      c.best_epoch = c.epoch;
      c.best_step = e.step;
    }
    if (e.metric != "accuracy") {
      c.metric = e.metric;
      c.last_value = e.value;
      if (e.best) c.best_value = e.value;
    }
    if (t_.config_.train.early_stop) note_improvement(result);
    tell(e);
    if (!e.best || folder_.empty()) return;
    save(folder_ + "/best.safetensors");
    write_examination(e);
  }

  // From now on evaluations on a section are looked at, for the report.
  void examine(const std::string& section) {
    if (folder_.empty() || !t_.config_.log_report || section.empty()) return;
    t_.examined_ = section;
    t_.examination_ = detail::Examination::of(section == "valid" ? *t_.valid_data_ : *t_.test_data_, t_.config_);
  }
  void write_examination(const EvalEvent& e) {
    if (t_.examination_ && t_.examined_ == e.split)
      write_file_atomically(folder_ + "/evaluation.json", t_.examination_->json(e));
  }

  EvalEvent event_of(const Evaluation& result, const std::string& split, int64_t step) const {
    EvalEvent e;
    e.split = split;
    e.epoch = t_.counters_.epoch;
    e.step = step;
    e.loss = result.loss;
    e.accuracy = result.accuracy;
    e.metrics = result.metrics;
    e.metric = t_.best_.metric;
    e.value = value_of(result.metrics, e.metric).value();
    return e;
  }

  void tell(const EvalEvent& e) {
    if (metrics_) metrics_->write(e);
    if (hooks_.on_eval) hooks_.on_eval(e);
  }

  void note_improvement(const Evaluation& result) {
    RunCounters& c = t_.counters_;
    const double value = value_of(result.metrics, t_.early_stop_.metric).value();
    const double delta = t_.config_.train.early_stop->min_delta;
    const double than = c.early_stop_best.value_or(0) + (t_.early_stop_.more_is_better ? delta : -delta);
    const bool better = std::isfinite(value) && (!c.early_stop_best || t_.early_stop_.better(value, than));
    if (better) c.early_stop_best = value;
    c.early_stop_waited = better ? 0 : c.early_stop_waited + 1;
  }

  // Of the model as it is now, over the microbatch that trained it last.
  void check_loss() {
    const Clock::time_point before = Clock::now();
    learner().evaluate(feed_->x(), feed_->target(), feed_->counted());
    interval_.start += Clock::now() - before;
  }

  void save(const std::string& path) {
    if (metrics_) {
      metrics_->flush();
      t_.counters_.metrics_bytes = metrics_->written().bytes;
      t_.counters_.metrics_crc = metrics_->written().crc32c;
    }
    t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    interval_.keep(t_.counters_);
    save_checkpoint(path, learner(), t_.counters_, t_.config_yaml_, t_.tokenizer_);
    if (hooks_.on_checkpoint) hooks_.on_checkpoint(path);
  }

  TrainEvent event() {
    TrainEvent e;
    e.step = learner().state().step;
    e.epoch = t_.counters_.epoch;
    e.microbatch = learner().state().microbatch;
    e.microbatches_total = t_.total_microbatches_;
    const auto up = [&](int64_t each) { return (e.microbatches_total + each - 1) / each; };
    e.steps_total = up(t_.config_.batch.accumulate());
    e.epochs_total = up(t_.microbatches_per_epoch_);
    e.lr = static_cast<double>(learner().learning_rate(std::max<int64_t>(e.step - 1, 0)));
    e.seconds = seconds_since(start_);
    const double done = static_cast<double>(e.microbatch - first_microbatch_);
    e.eta_seconds = done > 0 ? e.seconds / done * static_cast<double>(t_.total_microbatches_ - e.microbatch) : 0;
    const Dataset& data = *t_.train_data_;
    interval_.report(e, data.classes() > 0, data.vocabulary() > 0 ? data.features() : 0);
    e.gmacs_per_s = e.samples_per_s * 3e-9 * static_cast<double>(sample_macs());
    if (t_.config_.log_peak) e.mfu = 100 * e.gmacs_per_s / *t_.config_.log_peak;
    return e;
  }

  // Multiplications of a forward pass, as the model is in this phase.
  int64_t sample_macs() {
    if (std::exchange(macs_phase_, learner().phase()) != learner().phase()) macs_ = layer_table(learner().model()).macs;
    return macs_;
  }

  void write_train_line() {
    if (metrics_) metrics_->write(event());
    interval_ = Interval();
  }

  // Of a run that has ended: what is said of the model; nothing where a request to stop ended the evaluation.
  void evaluate_end(TrainOutcome& outcome) {
    const std::function<bool()> stop = [this] { return cut(); };
    const std::string selected = t_.selected_on();
    outcome.evaluated_step = learner().state().step;
    if (selected == "valid" && t_.test_data_) {
      outcome.evaluated = "test";
      examine("test");
      outcome.evaluation = evaluate_best(outcome.evaluated_step, stop);
      if (!outcome.evaluation) return;
      EvalEvent e = event_of(*outcome.evaluation, "test", outcome.evaluated_step);
      e.final = true;
      tell(e);
      if (!folder_.empty()) write_examination(e);
      if (metrics_) metrics_->flush();
    } else if (selected.empty() && !folder_.empty()) {
      outcome.evaluated = "train";
      outcome.evaluation = t_.evaluate_training_part(stop);
    } else if (!selected.empty() && !folder_.empty() && evaluated_step_ != outcome.evaluated_step) {  // before a resume
      outcome.evaluated = selected;
      outcome.evaluation = t_.evaluate_on(selected, stop);
    }
  }

  // On data.test: the best model, whose step is given then; where there is no file of it, the last one.
  std::optional<Evaluation> evaluate_best(int64_t& step, const std::function<bool()>& stop) {
    const int64_t best = t_.counters_.best_step;
    const std::string file = folder_ + "/best.safetensors";
    if (folder_.empty() || best == step || best == 0) return t_.evaluate_on("test", stop);
    if (!file_system().exists(file)) {
      log(LogLevel::kWarning, concat(file, " is missing: data.test is evaluated with the last model"));
      return t_.evaluate_on("test", stop);
    }
    step = best;
    const std::unique_ptr<Learner> learner = load_evaluator(t_.config_, *t_.test_data_, file);
    return detail::evaluate(*learner, *t_.test_data_, t_.config_.train.eval.batch, t_.test_resident_.get(), INT64_MAX,
                            stop, t_.examination_.get());
  }

  void say_why_ended(TrainOutcome& outcome) const {
    const bool due = t_.counters_.evaluation_due;
    if (outcome.stopped != StopRequest::kNone) {
      const bool interrupt = outcome.stopped == StopRequest::kInterrupt;
      outcome.ended_by = interrupt ? "interrupt" : "terminate";
      outcome.ended = concat(interrupt ? "interrupted" : "terminated", " at step ", outcome.optimizer_steps,
                             due ? ", in an evaluation that a resumed run repeats" : "");
    } else if (t_.stops_early()) {
      const EarlyStopConfig& stop = *t_.config_.train.early_stop;
      outcome.ended_by = "train.early_stop";
      outcome.ended =
          concat(t_.early_stop_.metric, " on data.", t_.selected_on(), " did not improve",
                 stop.min_delta > 0 ? concat(" by more than ", stop.min_delta) : std::string(), " in ",
                 t_.counters_.early_stop_waited, " evaluations; the best was ", *t_.counters_.early_stop_best);
    } else {
      outcome.ended_by = "train.stop";
      outcome.ended = concat("train.stop (", t_.config_.train.stop, ") is reached");
    }
  }

  TrainOutcome finish() {
    TrainOutcome outcome;
    outcome.selected_on = t_.selected_on();
    outcome.metric = t_.best_.metric;
    outcome.optimizer_steps = learner().state().step;
    if (evaluated_step_ == outcome.optimizer_steps) {
      outcome.evaluation = evaluation_;
      outcome.evaluated = outcome.selected_on;
      outcome.evaluated_step = evaluated_step_;
    }
    if (t_.ended()) evaluate_end(outcome);
    const bool complete = t_.ended() && (outcome.evaluated.empty() || outcome.evaluation);
    if (!outcome.evaluation) outcome.evaluated.clear();
    outcome.stopped = complete ? StopRequest::kNone : stop_;
    outcome.seconds = t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    outcome.counters = t_.counters_;
    if (folder_.empty()) checkpoint::require_finite(learner());  // else saving has looked
    outcome.state_hash = state_hash(learner(), t_.counters_);
    say_why_ended(outcome);
    log(LogLevel::kInfo, "ended: " + outcome.ended);
    if (outcome.selected_on == "test")
      log(LogLevel::kInfo, "the best model was chosen on data.test: set data.valid to choose it on other samples");
    if (!folder_.empty())
      write_summary(folder_, outcome, outcome.stopped == StopRequest::kNone ? "finished" : "interrupted");
    write_report();
    return outcome;
  }

  // A report that cannot be made does not harm the run.
  void write_report() {
    if (folder_.empty() || !t_.config_.log_report) return;
    detail::record_model(folder_, learner());
    try {
      write_file_atomically(folder_ + "/report.html", html_report({folder_}));
    } catch (const std::exception& e) {
      log(LogLevel::kWarning, concat("report.html is not written: ", e.what(), ". Later: bitgrad report ", folder_));
    }
  }

  Trainer& t_;
  const std::string folder_;
  const TrainHooks& hooks_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<QuantMonitor> monitor_;
  std::unique_ptr<detail::BatchFeed> feed_;
  Interval interval_{t_.counters_};
  Clock::time_point start_ = Clock::now();
  int64_t first_microbatch_ = t_.learner_->state().microbatch;
  int64_t saved_step_ = -1, evaluated_step_ = -1;
  Evaluation evaluation_;                        // of that step
  int64_t boundary_epoch_ = t_.counters_.epoch;  // at the last step boundary
  const double seconds_before_ = t_.counters_.train_seconds;
  int64_t told_phase_ = -1;  // which updates of it are fused
  int64_t macs_phase_ = -1, macs_ = 0;
  StopRequest stop_ = StopRequest::kNone;
};

TrainOutcome Trainer::run(const std::string& folder, const TrainHooks& hooks) {
  const DeviceGuard guard(learner_->device());
  start();
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
