#include "run/run_parts.h"

#include <cmath>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "train/evaluation.h"
#include "train/train_state.h"

namespace bitgrad {

Trainer::Evaluations::Evaluations(Trainer& trainer, Run run) : t_(trainer), run_(std::move(run)) {
  examine(t_.selected_on());
}

void Trainer::Evaluations::evaluate() {
  const std::string section = t_.selected_on();
  t_.counters_.evaluation_due = true;
  const auto result = t_.evaluate_on(section, run_.cut, hook_of(section));
  if (result) require_defined(*result, section);
  if (result && t_.config_.train.ema > 0) {
    t_.learner_->train_state().with_average([&] { average_ = t_.evaluate_on(section, run_.cut); });
    if (!average_) return;
  }
  t_.counters_.evaluation_due = !result;
  if (result) record(*result);
}

// A metric that these targets do not define selects no model, stops no run and cuts no rate.
void Trainer::Evaluations::require_defined(const Evaluation& result, const std::string& section) const {
  const auto check = [&](std::string_view key, const BestRule& rule) {
    const std::optional<double> value = value_of(result.metrics, rule.metric);
    if (value && std::isnan(*value))
      fail_with(ErrorCode::kData, key, rule.metric, " is not defined on data.", section,
                ", as the warning before says. Choose another metric, or samples on which it is defined");
  };
  check("train.best", t_.rules_.best);
  if (t_.config_.train.early_stop) check("train.early_stop", t_.rules_.early_stop);
  if (t_.config_.schedule.name == "plateau") check("schedule.metric", t_.rules_.plateau);
}

void Trainer::Evaluations::record(const Evaluation& result) {
  last_ = result;
  step_ = t_.learner_->state().step;
  RunCounters& c = t_.counters_;
  EvalEvent e = event_of(result, t_.selected_on(), step_);
  const std::optional<double> best = t_.best_value();
  e.best = !best || t_.rules_.best.better(e.value, *best);
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
  if (t_.config_.schedule.name == "plateau") follow_plateau(result);
  e.average = average_;
  report(e);
  if (!e.best || run_.folder.empty()) return;
  write_examination(e);  // first: a run that is killed here and resumed from best.safetensors has it
  run_.save_best();
}

// Counts the evaluations in a row that are not better than `best` by more than min_delta.
void Trainer::Evaluations::note(const Evaluation& result, const BestRule& rule, double min_delta,
                                std::optional<double>& best, int64_t& waited) {
  const double value = value_of(result.metrics, rule.metric).value();
  const double than = best.value_or(0) + (rule.more_is_better ? min_delta : -min_delta);
  const bool better = std::isfinite(value) && (!best || rule.better(value, than));
  if (better) best = value;
  waited = better ? 0 : waited + 1;
}

void Trainer::Evaluations::follow_plateau(const Evaluation& result) {
  const ScheduleConfig& schedule = t_.config_.schedule;
  RunCounters& c = t_.counters_;
  note(result, t_.rules_.plateau, schedule.min_delta, c.plateau_best, c.plateau_waited);
  if (c.plateau_waited < schedule.patience) return;
  const float before = t_.learner_->learning_rate(step_);
  c.plateau_waited = 0;
  c.plateaus.push_back(step_);
  t_.set_rates();
  const float now = t_.learner_->learning_rate(step_);
  if (now == before) return;
  log(LogLevel::kInfo, concat("schedule plateau: ", t_.rules_.plateau.metric, " on data.", t_.selected_on(),
                              " did not improve in ", schedule.patience, " evaluations: the rate is ", now,
                              " instead of ", before, " from step ", step_, " on"));
}

void Trainer::Evaluations::note_improvement(const Evaluation& result) {
  RunCounters& c = t_.counters_;
  note(result, t_.rules_.early_stop, t_.config_.train.early_stop->min_delta, c.early_stop_best, c.early_stop_waited);
  if (c.early_stop_waited != t_.config_.train.early_stop->patience || t_.stops_early()) return;
  const int64_t form = t_.last_form();
  log(LogLevel::kWarning,
      concat("train.early_stop: ", t_.rules_.early_stop.metric, " did not improve in ", c.early_stop_waited,
             " evaluations, but phase ", form, ", from step ", t_.learner_->phases()[static_cast<size_t>(form)].from,
             " on, gives the model its last form: the run goes on, and patience starts anew there"));
}

EvalEvent Trainer::Evaluations::event_of(const Evaluation& result, const std::string& split, int64_t step) const {
  EvalEvent e;
  e.split = split;
  e.epoch = t_.counters_.epoch;
  e.step = step;
  e.loss = result.loss;
  e.accuracy = result.accuracy;
  e.metrics = result.metrics;
  e.metric = t_.rules_.best.metric;
  e.value = value_of(result.metrics, e.metric).value();
  return e;
}

void Trainer::Evaluations::report(const EvalEvent& e) {
  if (run_.metrics != nullptr) run_.metrics->write(e);
  if (run_.hooks.on_eval) run_.hooks.on_eval(e);
}

// From now on, evaluations on `section` are examined for the report.
void Trainer::Evaluations::examine(const std::string& section) {
  if (!run_.kept || !t_.config_.log.report || section.empty()) return;
  examined_ = section;
  examination_ = detail::Examination::of(section == "valid" ? *t_.valid_data_ : *t_.test_data_, t_.config_);
}

OutputHook Trainer::Evaluations::hook_of(const std::string& section) {
  return examination_ && examined_ == section ? examination_->begin() : OutputHook();
}

// Pictures are read from the data again. If that fails, the run goes on without them.
void Trainer::Evaluations::write_examination(const EvalEvent& e) {
  if (!examination_ || examined_ != e.split || run_.folder.empty()) return;
  std::string text;
  try {
    text = examination_->json(e);
  } catch (const Error& error) {
    log(LogLevel::kWarning, concat("evaluation.json is not written: ", error.what()));
    return;
  }
  write_file_atomically(run_.folder + "/evaluation.json", text);
}

void Trainer::Evaluations::finish(TrainOutcome& outcome) {
  if (step_ == outcome.optimizer_steps) {
    outcome.evaluation = last_;
    outcome.evaluated = outcome.selected_on;
    outcome.evaluated_step = step_;
  }
  if (t_.ended()) evaluate_end(outcome);
}

// If a request to stop cuts the evaluation short, there is no result.
void Trainer::Evaluations::evaluate_end(TrainOutcome& outcome) {
  const std::string selected = t_.selected_on();
  outcome.evaluated_step = t_.learner_->state().step;
  if (selected == "valid" && t_.test_data_) return evaluate_best_on_test(outcome);
  if (!run_.kept) return;
  if (selected.empty()) {
    outcome.evaluated = "train";
    outcome.evaluation = t_.evaluate_training_part(run_.cut);
  } else if (step_ != outcome.evaluated_step) {  // the last evaluation was before a resume
    outcome.evaluated = selected;
    outcome.evaluation = t_.evaluate_on(selected, run_.cut, hook_of(selected));
  }
}

void Trainer::Evaluations::evaluate_best_on_test(TrainOutcome& outcome) {
  outcome.evaluated = "test";
  examine("test");
  outcome.evaluation = evaluate_best(outcome.evaluated_step);
  if (!outcome.evaluation) return;
  EvalEvent e = event_of(*outcome.evaluation, "test", outcome.evaluated_step);
  e.final = true;
  if (e.step == t_.counters_.best_step) e.epoch = t_.counters_.best_epoch;  // of the model, not of the run's end
  report(e);
  write_examination(e);
  if (run_.metrics != nullptr) run_.metrics->flush();
}

// Evaluates the best model on data.test and sets `step` to its step; if there is no file of it, evaluates the last
// model.
std::optional<Evaluation> Trainer::Evaluations::evaluate_best(int64_t& step) {
  const int64_t best = t_.counters_.best_step;
  const std::string file = run_.folder + "/best.safetensors";
  if (!run_.kept || best == step || best == 0) return t_.evaluate_on("test", run_.cut, hook_of("test"));
  const Ranks ranks(t_);
  if (ranks.of_first(file_system().exists(file) ? 1 : 0) == 0) {
    log(LogLevel::kWarning, concat(file, " is missing: data.test is evaluated with the last model"));
    return t_.evaluate_on("test", run_.cut, hook_of("test"));
  }
  step = best;
  const std::unique_ptr<Learner> learner =
      ranks.rank() == 0 ? load_evaluator(t_.config_, *t_.test_data_, file) : nullptr;
  return detail::evaluate(learner ? *learner : *t_.learner_, *t_.test_data_, t_.config_.train.eval.batch,
                          t_.test_resident_.get(), INT64_MAX, run_.cut, hook_of("test"),
                          {t_.communicator_.get(), /*first_alone=*/true});
}

}  // namespace bitgrad
