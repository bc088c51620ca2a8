#include "bitgrad/train/learner.h"

#include <algorithm>
#include <utility>

#include "bitgrad/ops/attention.h"
#include "kernels/flag.h"
#include "train/evaluation.h"
#include "train/phases.h"
#include "train/reducer.h"
#include "train/step_graphs.h"
#include "train/train_state.h"
#include "train/window_sums.h"

namespace bitgrad {

Learner::Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer,
                 const RequantPolicy& policy, std::function<float(int64_t)> learning_rate, uint64_t seed,
                 LearnerUse use)
    : s_(std::make_unique<detail::TrainState>(std::move(model), std::move(loss), optimizer, policy,
                                              std::move(learning_rate), seed, use)) {
  detail::warn_without_profiler();
}
Learner::~Learner() = default;

void Learner::set_phases(std::vector<QuantPhase> phases) {
  const DeviceGuard guard(s_->device);
  s_->phases->set(std::move(phases));
}
const std::vector<QuantPhase>& Learner::phases() const { return s_->phases->list(); }
int64_t Learner::phase() const { return s_->phases->now(); }
void Learner::enter_phase(int64_t index) {
  const DeviceGuard guard(s_->device);
  s_->phases->enter(index);
}

void Learner::calibrate(std::span<const Tensor> batches) {
  const DeviceGuard guard(s_->device);
  std::vector<Tensor> planned;
  for (const Tensor& x : batches) planned.push_back(s_->as_planned(x));
  if (s_->document_end < 0) return bitgrad::calibrate(*s_->model, s_->state, planned);
  struct Ended {
    detail::TrainState& state;
    ~Ended() { detail::end_sequences(state); }
  } const ended{*s_};
  bitgrad::calibrate(*s_->model, s_->state, planned,
                     [&](const Tensor& x) { s_->state.sequence.starts = document_starts(x, s_->document_end); });
}

void Learner::convert() {
  s_->forget_recorded();
  const DeviceGuard guard(s_->device);
  bitgrad::convert(*s_->model);
  s_->phases->end();
  s_->converted = true;
  s_->rebind();
}
bool Learner::converted() const { return s_->converted; }

void Learner::plan(const PlanSpec& spec) {
  const auto trained = [](const Parameter* p) { return p->trains(); };
  const DeviceGuard guard(s_->device);
  const std::vector<Parameter*>& parameters = s_->parameters;
  require(!spec.trains || std::any_of(parameters.begin(), parameters.end(), trained), "model",
          "nothing trains: ", parameters.empty() ? "no layer has parameters" : "all parameters are frozen");
  s_->plan = spec;
  s_->plan_and_check(*s_->plan);
  s_->phases->try_all();
}

void Learner::plan_again() {
  s_->forget_recorded();
  const DeviceGuard guard(s_->device);
  for (Parameter* p : s_->model->parameters())
    p->memory().forget_layouts();  // s_->parameters may hold learned parts that are gone
  if (s_->plan) s_->plan_and_check(*s_->plan);
}

Tensor Learner::on_device(std::span<const int32_t> labels) {
  const DeviceGuard guard(s_->device);
  const Shape shape{static_cast<int64_t>(labels.size())};
  if (!labels_.defined() || labels_.shape() != shape) labels_ = Tensor::empty(shape, dtypes::int32, MemoryKind::kBatch);
  if (!labels.empty()) device_backend(s_->device).copy_from_host(labels_.data(), labels.data(), labels_.bytes());
  return labels_;
}

StepResult Learner::microbatch(const Tensor& x, const Tensor& target, int64_t counted, double weight) {
  return detail::run_microbatch(*s_, x, {target, counted, weight});
}
StepResult Learner::microbatch(const Tensor& x, std::span<const int32_t> labels) {
  return microbatch(x, on_device(labels), static_cast<int64_t>(labels.size()));
}

bool Learner::usable() const { return s_->usable(); }

std::vector<Optimizer::FusedUpdate> Learner::fused_updates() const {
  std::vector<Optimizer::FusedUpdate> updates = s_->optimizer->fused_updates();
  if (s_->policy.accumulate > 1)
    for (auto& u : updates) u.why_not = concat("gradients are summed over ", s_->policy.accumulate, " microbatches");
  return updates;
}

void Learner::flush() { detail::flush(*s_); }
void Learner::drop_window() { detail::drop_window(*s_); }

Tensor Learner::predict(const Tensor& x) { return detail::Evaluator(*s_).predict(x); }

StepResult Learner::evaluate(const Tensor& x, const Tensor& target, int64_t counted, double weight) {
  return detail::Evaluator(*s_).evaluate(x, {target, counted, weight});
}
StepResult Learner::evaluate(const Tensor& x, std::span<const int32_t> labels) {
  return evaluate(x, on_device(labels), static_cast<int64_t>(labels.size()));
}

void Learner::set_document_end(int64_t id) { s_->document_end = id; }
int64_t Learner::document_end() const { return s_->document_end; }
const Form* Learner::input() const { return s_->plan ? &s_->plan->input : nullptr; }
Device Learner::device() const { return s_->device; }

void Learner::set_window_sum(WindowSum sum) { s_->set_window_sum(sum); }

void Learner::set_observer_update(ObserverUpdate update) { s_->set_observer_update(update); }

void Learner::gather_state(Optimizer::Place place) {
  const DeviceGuard guard(s_->device);
  s_->require_usable();
  s_->gather_state(place);
}

void Learner::set_communicator(std::shared_ptr<Communicator> ranks, WireFormat wire) {
  require(ranks != nullptr, "Learner", "no communicator");
  if (ranks->size() == 1) return;
  const int64_t accumulate = s_->policy.accumulate;
  require(s_->state.microbatch == 0, "Learner", "ranks begin together, before the first microbatch: got ",
          s_->state.microbatch, " done");
  require(accumulate % ranks->size() == 0, "Learner", "a window of ", accumulate, " microbatches cannot be shared by ",
          ranks->size(), " ranks. Expected a multiple");
  const ObserverUpdate update = s_->observer_update;
  require(update != ObserverUpdate::kMicrobatch, "Learner",
          "observers of several ranks follow training at the end of a step: got microbatch, expected auto or window");
  s_->set_observer_update(ObserverUpdate::kWindow);
  s_->observer_update = update;
  s_->ranks = std::move(ranks);
  s_->state.batch_statistics.emplace();
  s_->set_window_sum(WindowSum::kTree);
  s_->wire = wire;
  s_->reducer = std::make_unique<detail::Reducer>(*s_);
  s_->optimizer->set_ranks(s_->ranks);
}

void Learner::set_recorded(bool on) {
  if (!on || s_->device.is_cpu())
    s_->graphs.reset();
  else if (!s_->graphs)
    s_->graphs = std::make_unique<detail::StepGraphs>(*s_);
}
int64_t Learner::recorded_launches() const { return s_->graphs ? s_->graphs->launches() : 0; }
std::string Learner::not_recorded() const {
  return s_->device.is_cpu() ? "the CPU records nothing" : s_->graphs ? s_->graphs->why_not() : "";
}

Module& Learner::model() { return *s_->model; }
const LossFunction& Learner::loss() const { return s_->loss; }
Optimizer& Learner::optimizer() { return *s_->optimizer; }
StepState& Learner::state() { return s_->state; }
float Learner::learning_rate(int64_t step) const { return s_->learning_rate(step); }
void Learner::set_learning_rates(std::function<float(int64_t)> rates) { s_->learning_rate = std::move(rates); }
void Learner::set_rule_factors(std::function<RuleFactors(int64_t)> factors) { s_->rule_factors = std::move(factors); }
void Learner::set_total_steps(int64_t steps) {
  require(steps >= 0, "Learner", "the steps of a run must be at least 0, got ", steps);
  s_->total_steps = steps;
}
void Learner::set_total_microbatches(int64_t microbatches) {
  require(microbatches >= 0, "Learner", "the microbatches of a run must be at least 0, got ", microbatches);
  s_->total_microbatches = microbatches;
}
const std::vector<StepResult>& Learner::last_results() const { return s_->last_results; }
const std::vector<double>& Learner::rank_seconds() const { return s_->rank_seconds; }
int64_t Learner::window_samples() const { return s_->window.samples; }
int64_t Learner::since_requantize() const { return s_->since_requantize; }
const Learner::Skipped& Learner::skipped() const { return s_->skipped; }

}  // namespace bitgrad
