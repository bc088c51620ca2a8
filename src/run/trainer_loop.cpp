// The loop of a run: microbatches, and between optimizer steps reports, evaluations and checkpoints.
#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/run/metrics_log.h"
#include "bitgrad/run/trainer.h"
#include "config/lengths.h"
#include "run/model_warnings.h"
#include "run/run_parts.h"
#include "train/batch_feed.h"
#include "train/phases.h"
#include "train/pieces.h"

namespace bitgrad {

using detail::Clock;
using detail::Interval;
using detail::seconds_since;

namespace {

// Logs which updates run inside backward, and why the others do not.
void log_fused_updates(const Learner& learner) {
  std::map<std::string, std::string> paths;  // by reason; "": fused
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

// One run.
class Trainer::Loop {
 public:
  Loop(Trainer& trainer, const std::string& folder, const TrainHooks& hooks)
      : t_(trainer), folder_(folder), hooks_(hooks) {
    const RunCounters& c = t_.counters_;
    const WrittenSum saved{c.metrics_bytes, c.metrics_crc};
    if (!folder_.empty() && t_.config_.log.report) detail::record_session(folder_, t_.config_, learner());
    if (!folder_.empty())
      metrics_ = std::make_unique<MetricsLog>(folder_, t_.learner_->state().step, saved, metrics_outputs());
    files_ = std::make_unique<Files>(t_, folder_, hooks_, metrics_.get());
    if (t_.config_.log.quantization && (metrics_ || hooks_.on_quant)) {
      monitor_ = std::make_unique<QuantMonitor>(learner());
      code_warnings_.leave_out_fixed(learner().model());
      monitor_->expect(microbatches_to(*t_.config_.log.quantization));
    }
  }

  TrainOutcome run() {
    ranks_.compare();
    monitored_ = ranks_.any(monitor_ != nullptr);
    const bool kept = ranks_.any(!folder_.empty());
    require(folder_.empty() || ranks_.rank() == 0, "ranks", "rank ", ranks_.rank(), " has the run folder ", folder_,
            ": only rank 0 may have one");
    evaluations_ = std::make_unique<Evaluations>(
        t_,
        Evaluations::Run{folder_, kept, hooks_, metrics_.get(), [this] { return cut(); }, [this] { save("best"); }});
    learner().set_total_microbatches(t_.total_microbatches_);
    if (!t_.init_note_.empty()) log(LogLevel::kInfo, t_.init_note_);
    log_lines(t_.residence_);
    log(LogLevel::kInfo, concat("phase ", learner().phase(), " at step ", learner().state().step));
    if (const PrepareSpec* spec = detail::spec_of_now(learner())) detail::log_choices(learner().model(), *spec);
    detail::log_quantization(learner().model());
    form_warnings_.tell(learner().model(), inputs_never_negative_);
    warn_of_phases();
    LoaderOptions options;
    options.micro = t_.config_.batch.micro;
    options.last = last_batch_of(t_.config_);
    options.seed = static_cast<uint64_t>(t_.config_.run.seed);
    options.epoch = t_.counters_.epoch;
    options.position = t_.counters_.position;
    options.transforms = t_.transforms_;
    options.augment = t_.config_.data.train.augment;
    if (const auto& ranks = t_.communicator_)
      options.share = {ranks->rank(), ranks->size(), t_.config_.batch.accumulate(),
                       t_.total_microbatches_ - t_.done_microbatches()};
    feed_ = std::make_unique<detail::BatchFeed>(learner(), *t_.train_data_, options, t_.train_resident_.get());
    if (t_.done_microbatches() > 0 && !files_->last_is_here()) save("last");
    if (t_.counters_.evaluation_due) repeat_evaluation();
    // A request to stop takes effect at the end of the open window, where a checkpoint can be saved.
    while (t_.done_microbatches() < t_.total_microbatches_ && !t_.stops_early() &&
           (stop_ == StopRequest::kNone || learner().window_samples() > 0)) {
      const bool read = feed_->next();  // false: this rank has no part in the last window
      at_step_boundary_ = false;
      const int64_t skipped = learner().skipped().windows;
      bool stepped =
          read && learner().microbatch(feed_->x(), feed_->target(), feed_->counted(), feed_->weight()).stepped;
      if (!read || t_.done_microbatches() >= t_.total_microbatches_) {
        learner().flush();
        stepped = true;
      }
      const bool last = t_.done_microbatches() >= t_.total_microbatches_;
      t_.counters_.epoch = feed_->epoch();
      t_.counters_.position = feed_->position();
      poll_stop();
      if (stepped) note_phase();
      skipped_ = learner().skipped().windows > skipped;
      if (skipped_) note_skipped();
      if (stepped || skipped_) boundary(last);
    }
    return finish();
  }

  TrainOutcome run_or_fail() {
    try {
      return run();
    } catch (const std::exception& e) {
      ranks_.cancel(e);
      log(LogLevel::kError, e.what());
      failed(e);
      throw;
    } catch (...) {  // of a hook or a plugin
      ranks_.cancel(Error("an exception that is not an Error", ErrorCode::kBug));
      throw;
    }
  }

 private:
  // Writes summary and report of a run that ended with an error, if the folder still allows.
  void failed(const std::exception& error) {
    if (folder_.empty()) return;
    try {
      save_if_consistent(error);
      metrics_->flush();
      TrainOutcome outcome = outcome_now();
      outcome.seconds = seconds_before_ + seconds_since(start_);
      outcome.counters = t_.counters_;
      outcome.ended_by = "error";
      outcome.ended = error.what();
      write_summary(folder_, outcome, "failed", error.what());
      files_->write_report();
    } catch (const std::exception& second) {
      log(LogLevel::kError, second.what());
    }
  }

  Learner& learner() { return *t_.learner_; }

  // An error between two steps (data that cannot be read) or within an evaluation (no memory) leaves the learner as the
  // last step made it, and all lines of the step are written but those of the evaluation, which the resumed run
  // repeats.
  void save_if_consistent(const std::exception& error) {
    const int64_t step = learner().state().step;
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool broken =
        (known != nullptr && (known->code() == ErrorCode::kNonFinite || known->code() == ErrorCode::kBug)) ||
        !learner().optimizer().whole();
    if (!(at_step_boundary_ || t_.counters_.evaluation_due) || broken || t_.done_microbatches() == saved_at_) return;
    try {
      save("last");
      log(LogLevel::kWarning, concat("saved at step ", step, ": resume with bitgrad train --resume ", folder_));
    } catch (const std::exception& second) {
      log(LogLevel::kError, second.what());
    }
  }

  void note_skipped() {
    if (std::exchange(warned_skipped_, true)) return;
    log(LogLevel::kWarning,
        concat(
            "no target counts in the window after step ", learner().state().step,
            ": skipped, with no update. Further ones are counted: skipped_windows in metrics.jsonl and summary.json"));
  }

  void poll_stop() {
    if (hooks_.stop_requested && wish_ == StopRequest::kNone) wish_ = hooks_.stop_requested();
  }
  // What one rank wishes, all do.
  void agree_on_stop() { stop_ = static_cast<StopRequest>(ranks_.largest(static_cast<int64_t>(wish_))); }
  bool cut() {
    if (!ranks_.any(hooks_.cut_evaluation && hooks_.cut_evaluation())) return false;
    poll_stop();
    agree_on_stop();
    if (stop_ == StopRequest::kNone) stop_ = StopRequest::kInterrupt;
    return true;
  }

  MetricsOutputs metrics_outputs() const {
    MetricsOutputs outputs{
        .csv = true, .evaluates = !t_.selected_on().empty(), .tensorboard = t_.config_.log.tensorboard};
    for (const Metric* m : metrics())
      if (m->name != "loss" &&
          m->fits({t_.train_data_->target_form(), t_.config_.loss, t_.train_data_->vocabulary()}) &&
          (!m->follow || t_.learner_->train_state().metric_keys.contains(m->name)))
        outputs.metrics.push_back(m->name);
    return outputs;
  }

  // Only a warning: short runs of a long configuration are common.
  void warn_of_phases() {
    const int64_t accumulate = t_.config_.batch.accumulate();
    const int64_t steps = (t_.total_microbatches_ + accumulate - 1) / accumulate;
    const std::vector<QuantPhase>& phases = learner().phases();
    for (size_t i = 0; i < phases.size(); ++i)
      if (phases[i].from >= steps)
        log(LogLevel::kWarning, concat("quant.phases.", i, " never starts: it begins at step ", phases[i].from,
                                       ", the run ends after ", steps));
  }

  void note_phase() {
    const int64_t phase = learner().phase();
    const int64_t form = learner().train_state().phases->form_start(phase);
    if (std::exchange(form_, form) != form) t_.begin_form();
    const int64_t before = std::exchange(announced_phase_, phase);  // -1: the start of a run
    if (before == phase) return;
    log_fused_updates(learner());
    form_warnings_.tell(learner().model(), inputs_never_negative_);
    if (before >= 0 && hooks_.on_phase) hooks_.on_phase(detail::phase_text(learner()));
  }

  // Everything that happens between optimizer steps: reports, evaluation, checkpoints. After a skipped window, what is
  // due by steps has been done.
  void boundary(bool last) {
    const int64_t step = learner().state().step;
    for (const StepResult& r : learner().last_results()) interval_.add(r);
    interval_.add(learner().rank_seconds());
    agree_on_stop();
    if (reads_state(last))  // an average is evaluated by all ranks, in place of the values
      learner().gather_state(learner().train_state().average ? Optimizer::Place::kAllRanks
                                                             : Optimizer::Place::kFirstRank);
    if (hooks_.on_tick) hooks_.on_tick(event());
    if (last || due(t_.config_.log.every)) write_train_line();
    if (monitored_ && (last || !skipped_)) watch_quantization(last);
    const bool evaluated_now = !t_.selected_on().empty() && (last || due(t_.config_.train.eval.every));
    if (evaluated_now) evaluate();
    const bool ends = last || stop_ != StopRequest::kNone || t_.stops_early();
    const bool saves =
        !folder_.empty() && (ends || due(t_.config_.checkpoint.every)) && t_.done_microbatches() != saved_at_;
    if ((ends || saves) && evaluations_->step() != step) check_loss();
    if (ends || evaluated_now || due(t_.config_.ranks.check_every)) ranks_.compare_models();
    if (saves) {
      save("last");
      saved_at_ = t_.done_microbatches();
    }
    boundary_epoch_ = t_.counters_.epoch;
    at_step_boundary_ = true;
  }

  // Whether what is due at this boundary reads masters or moments on the first rank, which writes files and statistics.
  bool reads_state(bool last) const {
    const std::optional<Quantity>& watched = t_.config_.log.quantization;
    return last || stop_ != StopRequest::kNone || due(t_.config_.checkpoint.every) ||
           (!t_.selected_on().empty() && due(t_.config_.train.eval.every)) ||
           (monitored_ && !skipped_ && watched && due(*watched));
  }

  bool due(const Quantity& every) const {
    if (every.unit == Quantity::Unit::kSteps) return !skipped_ && t_.learner_->state().step % every.value == 0;
    return t_.counters_.epoch / every.value > boundary_epoch_ / every.value;  // one window may end several epochs
  }

  // Microbatches until the next event of period `every`, or the end of the run.
  int64_t microbatches_to(const Quantity& every) const {
    const int64_t done = t_.done_microbatches(), left = t_.total_microbatches_ - done;
    if (every.unit == Quantity::Unit::kSteps)
      return std::min(left, detail::microbatches_of(every.value - t_.learner_->state().step % every.value,
                                                    t_.config_.batch.accumulate()));
    const int64_t next = (t_.counters_.epoch / every.value + 1) * every.value;
    return std::min(left, detail::microbatches_of(next, t_.microbatches_per_epoch_) - done);
  }

  void watch_quantization(bool last) {
    const Clock::time_point before = Clock::now();
    const Quantity& every = *t_.config_.log.quantization;
    const bool reports = last || due(every);
    const Tensor samples = reports ? ranks_.last_samples(feed_->x()) : Tensor();
    if (!monitor_) return;
    monitor_->stepped();
    if (reports)
      for (const QuantEvent& e : monitor_->report(t_.counters_.epoch, samples)) {
        code_warnings_.watch(e);
        if (metrics_) metrics_->write(e);
        if (hooks_.on_quant) hooks_.on_quant(e);
      }
    if (!last) monitor_->expect(microbatches_to(every));
    interval_.start += Clock::now() - before;  // count training time only in samples/s
  }

  void evaluate() {
    const Clock::time_point before = Clock::now();
    evaluations_->evaluate();
    interval_.start += Clock::now() - before;  // as above
  }

  // Repeats the evaluation that was cut short when the run was stopped.
  void repeat_evaluation() {
    evaluate();
    if (t_.ended()) save("last");
  }

  void save(std::string_view name) {
    if (folder_.empty()) return;
    t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    interval_.keep(t_.counters_);
    files_->save(name);
  }

  // Checks that the updated model has a finite loss on the last training microbatch.
  void check_loss() {
    if (!feed_->x().defined()) return;  // a rank that had no part in this run's windows
    const Clock::time_point before = Clock::now();
    learner().evaluate(feed_->x(), feed_->target(), feed_->counted(), feed_->weight());
    interval_.start += Clock::now() - before;
  }

  TrainEvent event() {
    TrainEvent e;
    e.step = learner().state().step;
    e.epoch = t_.counters_.epoch;
    e.microbatch = t_.done_microbatches();
    e.skipped_windows = learner().skipped().windows;
    e.microbatches_total = t_.total_microbatches_;
    const auto up = [&](int64_t each) { return (e.microbatches_total + each - 1) / each; };
    e.steps_total = up(t_.config_.batch.accumulate());
    const Quantity& stop = t_.config_.train.stop;
    e.epochs_total = stop.unit == Quantity::Unit::kEpochs ? stop.value : up(t_.microbatches_per_epoch_);
    e.lr = static_cast<double>(learner().learning_rate(std::max<int64_t>(e.step - 1, 0)));
    if (learner().optimizer().spec().measures_norm() && e.microbatch > first_microbatch_)
      e.gradient_norm = static_cast<double>(learner().optimizer().last_norm());
    e.seconds = seconds_since(start_);
    const double done = static_cast<double>(e.microbatch - first_microbatch_);
    e.eta_seconds = done > 0 ? e.seconds / done * static_cast<double>(t_.total_microbatches_ - e.microbatch) : 0;
    const Dataset& data = *t_.train_data_;
    interval_.report(e, data.classes() > 0, data.vocabulary() > 0 ? data.features() : 0);
    e.gmacs_per_s = e.samples_per_s * 3e-9 * static_cast<double>(sample_macs());
    if (t_.config_.log.peak) e.mfu = 100 * e.gmacs_per_s / *t_.config_.log.peak;
    return e;
  }

  // MACs of a forward pass for one sample, in the current phase.
  int64_t sample_macs() {
    if (std::exchange(macs_phase_, learner().phase()) != learner().phase()) macs_ = layer_table(learner().model()).macs;
    return macs_;
  }

  void write_train_line() {
    if (metrics_) metrics_->write(event());
    interval_ = Interval();
  }

  void set_end_reason(TrainOutcome& outcome) const {
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
          concat(t_.rules_.early_stop.metric, " on data.", t_.selected_on(), " did not improve",
                 stop.min_delta > 0 ? concat(" by more than ", stop.min_delta) : std::string(), " in ",
                 t_.counters_.early_stop_waited, " evaluations; the best was ", *t_.counters_.early_stop_best);
    } else {
      outcome.ended_by = "train.stop";
      outcome.ended = concat("train.stop (", t_.config_.train.stop, ") is reached");
    }
  }

  TrainOutcome outcome_now() {
    TrainOutcome outcome;
    outcome.selected_on = t_.selected_on();
    outcome.metric = t_.rules_.best.metric;
    outcome.optimizer_steps = learner().state().step;
    outcome.skipped_windows = learner().skipped().windows;
    return outcome;
  }

  TrainOutcome finish() {
    TrainOutcome outcome = outcome_now();
    evaluations_->finish(outcome);
    const bool complete = t_.ended() && (outcome.evaluated.empty() || outcome.evaluation);
    if (!outcome.evaluation) outcome.evaluated.clear();
    outcome.stopped = complete ? StopRequest::kNone : stop_;
    outcome.seconds = t_.counters_.train_seconds = seconds_before_ + seconds_since(start_);
    outcome.counters = t_.counters_;
    const bool whole = learner().optimizer().whole();
    if (folder_.empty() && whole) checkpoint::require_finite(learner());  // otherwise saving has checked this
    outcome.state_hash = ranks_.of_first(whole ? state_hash(learner(), t_.counters_) : std::string());
    set_end_reason(outcome);
    note_form(outcome);
    log(LogLevel::kInfo, "ended: " + outcome.ended);
    if (outcome.selected_on == "test")
      log(LogLevel::kInfo, "the best model was chosen on data.test: set data.valid to choose it on other samples");
    if (!folder_.empty())
      write_summary(folder_, outcome, outcome.stopped == StopRequest::kNone ? "finished" : "interrupted");
    files_->write_report();
    return outcome;
  }

  void note_form(TrainOutcome& outcome) {
    const std::vector<Parameter*> parameters = learner().model().parameters();
    outcome.packed = std::any_of(parameters.begin(), parameters.end(), [](const Parameter* p) { return p->low_bit(); });
    const std::vector<QuantPhase>& phases = learner().phases();
    if (phases.size() <= 1) return;
    outcome.phase = learner().phase();
    outcome.form_since =
        phases.at(static_cast<size_t>(learner().train_state().phases->form_start(*outcome.phase))).from;
    const auto next = static_cast<size_t>(*outcome.phase) + 1;
    if (outcome.ended_by == "train.early_stop" && next < phases.size())
      log(LogLevel::kWarning,
          concat("the run ended in phase ", *outcome.phase, ", before quant.phases.", next, " began (from step ",
                 phases[next].from, "): the model has the form of phase ", *outcome.phase));
  }

  Trainer& t_;
  const std::string folder_;
  const TrainHooks& hooks_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<QuantMonitor> monitor_;
  detail::CodeWarnings code_warnings_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Evaluations> evaluations_;
  std::unique_ptr<detail::BatchFeed> feed_;
  Interval interval_{t_.counters_};
  Clock::time_point start_ = Clock::now();
  int64_t first_microbatch_ = t_.done_microbatches();
  int64_t saved_at_ = -1;                          // microbatches done at the last save
  bool skipped_ = false, warned_skipped_ = false;  // the window that just ended was skipped; one was reported
  bool at_step_boundary_ = false;                  // between two steps, when everything of the last one is done
  int64_t boundary_epoch_ = t_.counters_.epoch;    // epoch at the last step boundary
  const double seconds_before_ = t_.counters_.train_seconds;
  int64_t announced_phase_ = -1;  // the phase announced last
  detail::FormWarnings form_warnings_;
  const bool inputs_never_negative_ = detail::never_negative(t_.config_, *t_.train_data_);
  int64_t form_ = t_.learner_->train_state().phases->form_start(t_.learner_->phase());
  int64_t macs_phase_ = -1, macs_ = 0;
  const Ranks ranks_{t_};
  bool monitored_ = false;  // a rank has a monitor
  // Of this rank, and of all of them, at a step boundary.
  StopRequest wish_ = StopRequest::kNone, stop_ = StopRequest::kNone;
};

namespace {

template <typename Result, typename... Arguments>
void call_on(Device device, std::function<Result(Arguments...)>& hook) {
  if (!hook) return;
  hook = [device, hook = std::move(hook)](Arguments... arguments) {
    const DeviceGuard guard(device);
    return hook(std::forward<Arguments>(arguments)...);
  };
}

// Hooks are code of the program: what they make is where the program makes it.
TrainHooks on_device(TrainHooks hooks, Device device) {
  call_on(device, hooks.on_tick);
  call_on(device, hooks.on_eval);
  call_on(device, hooks.on_quant);
  call_on(device, hooks.on_checkpoint);
  call_on(device, hooks.on_phase);
  call_on(device, hooks.stop_requested);
  call_on(device, hooks.cut_evaluation);
  return hooks;
}

}  // namespace

TrainOutcome Trainer::run(const std::string& folder, const TrainHooks& given) {
  const TrainHooks hooks = on_device(given, current_device());
  const DeviceGuard guard(learner_->device());
  try {
    start();
    Loop loop(*this, folder, hooks);
    return loop.run_or_fail();
  } catch (const std::exception& e) {
    Ranks(*this).cancel(e);
    throw;
  } catch (...) {
    Ranks(*this).cancel(Error("an exception that is not an Error", ErrorCode::kBug));
    throw;
  }
}

}  // namespace bitgrad
