#include "bitgrad/train/learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "train/averages.h"
#include "train/bad_input.h"
#include "train/checkpoint/pieces.h"
#include "train/numbers.h"
#include "train/phases.h"
#include "train/step.h"
#include "train/step_graphs.h"
#include "train/window_sums.h"

namespace bitgrad {
namespace {

// With more microbatches per window than this, nearest rounding would stall sums in bf16.
constexpr int64_t kStochasticSums = 8;

// The learned parts of weights. Those that a requantization in the middle of a window fits again belong to its codes
// alone: a longer run trains on with what they were.
class LearnedParts {
 public:
  explicit LearnedParts(const std::vector<Parameter*>& parameters) {
    for (const Parameter* p : parameters)
      for (const auto& part : p->learned())
        kept_.emplace_back(part->value(), part->value().clone(MemoryKind::kWorkspace));
  }
  void put_back() const {
    for (auto [part, before] : kept_) part.copy_from(before);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

}  // namespace

void detail::check_codes_that_train(const Parameter& p, const RequantPolicy& policy) {
  if (p.has_master() || p.spec().frozen || policy.every == policy.accumulate) return;
  fail("requantize_every", "parameter '", p.path(), "' has no master, so its codes change at every optimizer step of ",
       policy.accumulate, " microbatches: got requantize_every ", policy.every, ". Set it to ", policy.accumulate,
       ", or add a master to the parameter");
}

Learner::Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer,
                 const RequantPolicy& policy, std::function<float(int64_t)> learning_rate, uint64_t seed)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(make_optimizer(optimizer)),
      policy_(policy),
      learning_rate_(std::move(learning_rate)),
      phases_(std::make_unique<Phases>(*this)) {
  check_requant(policy_);
  state_.seed = seed;
  model_->initialize(kModelRoot, state_);
  parameters_ = model_->parameters();
  for (const Parameter* p : parameters_)
    if (p->value().device() != device_)
      fail_with(ErrorCode::kDevice, "Learner", "parameter '", p->path(), "' is on ", to_string(p->value().device()),
                ", the current device is ", to_string(device_), ". Build the model and its learner on one device");
  for (const Parameter* p : parameters_) detail::check_codes_that_train(*p, policy_);
  optimizer_->attach(parameters_);
}

// Records a non-finite loss; the next check of the flags throws.
void Learner::note_loss(double loss) {
  if (!std::isfinite(loss) && !bad_loss_) bad_loss_ = loss;
}

// On a device the check is queued, and runs in order with other checks when errors are polled.
void Learner::check_flags(const char* when) {
  on_poll([this, when] {
    const std::vector<std::string> raised = state_.flags.raised();
    const std::optional<double> loss = std::exchange(bad_loss_, std::nullopt);
    if (raised.empty() && !loss) return;
    state_.flags.clear();
    if (raised.empty())
      fail_with(ErrorCode::kNonFinite, "non-finite", "the loss is ", *loss, ' ', when, " at optimizer step ",
                state_.step, ". ", checkpoint::describe_not_finite(*this),
                " A smaller learning rate or a smaller initialization may help.");
    std::string names;
    for (const std::string& n : raised) names += (names.empty() ? "" : ", ") + n;
    fail_with(ErrorCode::kNonFinite, "non-finite", "NaN or Inf ", when, " at optimizer step ", state_.step,
              " in the input of: ", names);
  });
}

void Learner::set_total_steps(int64_t steps) {
  require(steps >= 0, "Learner", "the steps of a run must be at least 0, got ", steps);
  total_steps_ = steps;
}

void Learner::begin_microbatch() {
  state_.training = true;
  if (window_microbatches_ == 0) {
    cut_window_ = {};
    phases_->enter_due();
    follow_average();
    window_start_ = state_.microbatch;
    if (ranks_) state_.microbatch += ranks_->rank() * own_microbatches();
  }
  if (total_steps_ > 0)
    state_.progress = std::min(static_cast<double>(state_.step) / static_cast<double>(total_steps_), 1.0);
  for (Parameter* p : parameters_)
    if (p->low_bit() && ste_rule(*p->spec().quant) == SteRule::kTanh)
      p->change([&](ParameterSpec& spec) { spec.quant->ste_t = annealed_t(*spec.quant, state_.progress); });
}

void Learner::choose_gradient_rounding() {
  for (Parameter* p : parameters_)
    if (p->spec().grad == dtypes::bf16) {
      const RandomStream draws = live_by_microbatch(
          {state_.seed, Purpose::kGradAccumulate, site_id(p->path()), static_cast<uint32_t>(state_.microbatch)});
      p->gradient().set_rounding(policy_.accumulate > kStochasticSums ? &draws : nullptr);
    }
}

void Learner::check_usable() const {
  const DeviceGuard guard(device_);
  poll_errors();
  require_usable();
}

void Learner::require_usable() const {
  require(!phases_->entering(), "Learner", "an Error ended the entry of phase ", phase(), " at optimizer step ",
          state_.step, ": its layers are between two phases. Resume from the last checkpoint with a new learner.");
  require(usable(), "Learner", "an Error ended optimizer step ", state_.step,
          " in the middle of its updates: masters and codes are between two steps. Resume from the last checkpoint "
          "with a new "
          "learner; optim.fused: off detects non-finite gradients before any update.");
}

std::vector<Optimizer::FusedUpdate> Learner::fused_updates() const {
  std::vector<Optimizer::FusedUpdate> updates = optimizer_->fused_updates();
  if (policy_.accumulate > 1)
    for (auto& u : updates) u.why_not = concat("gradients are summed over ", policy_.accumulate, " microbatches");
  return updates;
}

// The requantization due after another `microbatches`, if any.
std::optional<RequantKey> Learner::due_after(int64_t microbatches) const {
  if (!requant_due(policy_, since_requantize_ + microbatches)) return std::nullopt;
  return RequantKey{state_.seed, state_.step + 1};
}

// Called before a layer sees the samples, so that a rejected microbatch does not update norm statistics.
Learner::Target Learner::checked(const Tensor& x, const Tensor& target, int64_t counted, double weight) const {
  const int64_t samples = x.shape()[0], given = target.shape().rank() > 0 ? target.shape()[0] : 0;
  require(given == samples || !loss_.recordable(), "microbatch", "labels: got ", given, ", expected one for each of ",
          samples, " samples");
  if (target.device() != device_)
    fail_with(ErrorCode::kDevice, "microbatch", "the target (", target, ") is on ", to_string(target.device()),
              ", the learner on ", to_string(device_));
  const bool classes = target.dtype() == dtypes::int32;
  require(loss_.takes(target.dtype()), "microbatch", "loss ", loss_.name(), " takes ",
          classes ? "values (fp32)" : "classes (int32)", " as targets, got ", target);
  if (counted < 0 && classes && target.shape().rank() >= 2) counted = static_cast<int64_t>(target_count(target).item());
  if (counted < 0) counted = target.numel();
  return {target, counted, weight < 0 ? loss_.weight(target, counted) : weight};
}

StepResult Learner::microbatch(const Tensor& x, std::span<const int32_t> labels) {
  const DeviceGuard guard(device_);
  return microbatch(x, labels_here(labels), static_cast<int64_t>(labels.size()));
}

StepResult Learner::microbatch(const Tensor& x, const Tensor& target, int64_t counted, double weight) {
  const DeviceGuard guard(device_);
  require_usable();
  require(!converted_, "Learner", "the model is converted: it can only be evaluated");
  const int64_t now = state_.microbatch;
  try {
    const Tensor planned = as_planned(x);
    const Target given = checked(planned, target, counted, weight);
    require(target.numel() > 0, "microbatch", "a microbatch needs at least one target, got ", target);
    return run_microbatch(planned, given);
  } catch (const Error& error) {
    fail_window(error, x, now);
  } catch (...) {
    end_failed_window("an exception that is not an Error");
    throw;
  }
}

void Learner::note_input(const Tensor& x, int64_t microbatch) {
  if (!bad_input_.empty()) return;
  bad_input_ = detail::non_finite_input(x);
  if (!bad_input_.empty()) bad_input_ += concat(" in microbatch ", microbatch);
}

// Ends the window and rethrows. If an input was not finite, the error names it, since the finding follows from it.
void Learner::fail_window(const Error& error, const Tensor& x, int64_t microbatch) {
  if (error.code() == ErrorCode::kNonFinite) note_input(x, microbatch);
  const std::string input = std::exchange(bad_input_, {});
  end_failed_window(error.what());
  if (error.code() != ErrorCode::kNonFinite || input.empty()) throw;
  detail::fail_input(input, usable() ? " No parameter was updated."
                                     : " Parameters were updated in the same backward: the model is lost.");
}

Tensor Learner::labels_here(std::span<const int32_t> labels) {
  const Shape shape{static_cast<int64_t>(labels.size())};
  if (!labels_.defined() || labels_.shape() != shape) labels_ = Tensor::empty(shape, dtypes::int32, MemoryKind::kBatch);
  if (!labels.empty()) device_backend(device_).copy_from_host(labels_.data(), labels.data(), labels_.bytes());
  return labels_;
}

// Runs host work instead of just waiting for the device.
void Learner::do_meanwhile() const {
  if (!device_.is_cpu() && meanwhile_) meanwhile_();
}

StepResult Learner::run_microbatch(const Tensor& x, const Target& target) {
  begin_microbatch();
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  result.weight = target.weight;
  if (target.weight == 0) {
    pass_over(result);
    return result;
  }
  if (device_.is_cpu()) note_input(x, state_.microbatch);  // a device is checked only after an error
  Step step(*this, x, target);
  run(step, graphs_ && graphs_->count_and_serve(step) ? graphs_.get() : nullptr, result);
  step.outcome().write_to(result);
  return result;
}

// A microbatch in which nothing counts: its gradient is zero, a term of the sum that is left out.
void Learner::pass_over(StepResult& result) {
  if (sums_) sums_->add(parameters_);
  count_microbatch(result);
  if (window_microbatches_ < own_microbatches()) return;
  Step step(*this);
  run(step, nullptr, result);
}

// Runs the stages of a step, polling errors between its front and back parts.
void Learner::run(Step& step, Graphs* graphs, StepResult& result) {
  const int64_t before = state_.microbatch;
  try {
    if (graphs)
      graphs->run_front(step);
    else
      step.run_front();
    do_meanwhile();
    if (step.has_microbatch()) count_microbatch(result);
    poll_errors();
  } catch (...) {  // a microbatch whose backward failed does not count, even if a device reports it later
    state_.microbatch = before + (*step.outcome().backward_done ? 1 : 0);
    throw;
  }
  if (!step.key().last) return;
  if (step.empty()) {
    skip_window();
    result.skipped = true;
    return;
  }
  step.set_scalars();
  if (graphs)
    graphs->run_back(step);
  else
    step.run_back();
  optimizer_->end_step();
  close_window(step.key().requantize);
  result.stepped = true;
}

void Learner::count_microbatch(const StepResult& result) {
  ++state_.microbatch;
  ++since_requantize_;
  ++window_microbatches_;
  window_samples_ += result.samples;
  window_weights_.push_back(result.weight);
}

void Learner::close_window(bool requantized) {
  ++state_.step;
  if (average_) average_->update(*model_);
  if (ranks_) {
    state_.microbatch = window_start_ + policy_.accumulate;
    since_requantize_ += others_microbatches();
  }
  bad_input_.clear();
  end_window();
  if (requantized) since_requantize_ = 0;
}

void Learner::end_window() {
  window_microbatches_ = window_samples_ = 0;
  window_weights_.clear();
}

double Learner::window_weight() const { return std::accumulate(window_weights_.begin(), window_weights_.end(), 0.0); }

// Goes on as if the window, in which nothing counts, had not been there.
void Learner::skip_window() {
  ++skipped_.windows;
  skipped_.microbatches += window_microbatches_ + others_microbatches();
  state_.microbatch = window_start_;
  drop_window();
}

Learner::~Learner() = default;

std::string_view window_sum_name(WindowSum sum) { return sum == WindowSum::kTree ? "tree" : "running"; }

bool Learner::usable() const { return !optimizer_->half_moved() && !phases_->entering(); }

void Learner::set_recorded(bool on) {
  if (!on || device_.is_cpu())
    graphs_.reset();
  else if (!graphs_)
    graphs_ = std::make_unique<Graphs>(*this);
}
void Learner::forget_recorded() {
  if (graphs_) graphs_->forget();
}
int64_t Learner::recorded_launches() const { return graphs_ ? graphs_->launches() : 0; }
std::string Learner::not_recorded() const {
  return device_.is_cpu() ? "the CPU records nothing" : graphs_ ? graphs_->why_not() : "";
}

// Cleans up while an exception passes: gradients may be incomplete, or not finite.
void Learner::end_failed_window(const std::string& why) {
  discard_errors();
  optimizer_->disarm();
  if (ranks_) ranks_->cancel(why);
  if (usable()) drop_window();
}

void Learner::requantize() {
  for (Parameter* p : parameters_) p->requantize(state_.seed, state_.step);
  since_requantize_ = 0;
}

void Learner::set_average(double decay) {
  require(decay > 0 && decay < 1, "Learner", "decay of the average: got ", decay, ", expected a number in (0, 1)");
  average_ = std::make_unique<detail::Averages>(decay);
}

void Learner::follow_average() {
  const DeviceGuard guard(device_);
  if (average_) average_->follow(*model_);
}

void Learner::with_average(const std::function<void()>& run) {
  require(average_ != nullptr, "Learner", "no average: call set_average before training");
  const DeviceGuard guard(device_);
  forget_recorded();
  follow_average();
  struct Held {
    Module& model;
    const detail::Numbers numbers{model};
    ~Held() { numbers.put_back(model); }
  } const held{*model_};
  average_->put_into(*model_, state_.seed, state_.step);
  run();
}

void Learner::keep_cut_window() {
  cut_window_.since_requantize = since_requantize_;
  for (const Parameter* p : parameters_)
    if (p->low_bit() && p->has_master()) cut_window_.codes[p->path()] = detail::copy_with_scales(p->value());
}

void Learner::reopen_window() {
  if (cut_window_.codes.empty()) return;
  const DeviceGuard guard(device_);
  for (Parameter* p : parameters_)
    if (const auto codes = cut_window_.codes.find(p->path()); codes != cut_window_.codes.end())
      p->restore({p->master().clone(MemoryKind::kWorkspace), codes->second});
  since_requantize_ = cut_window_.since_requantize;
  cut_window_ = {};
}

void Learner::flush() {
  const DeviceGuard guard(device_);
  require_usable();
  const bool whole = window_samples_ == 0;
  try {
    require(window_samples_ == 0 || !ranks_, "Learner", "flush inside a window: ranks only end complete windows");
    if (window_samples_ > 0) {
      Step step(*this);
      StepResult result;
      run(step, nullptr, result);
    }
  } catch (const Error& error) {
    fail_window(error, {}, state_.microbatch);
  } catch (...) {
    end_failed_window("an exception that is not an Error");
    throw;
  }
  if (since_requantize_ > 0) {
    const LearnedParts parts(parameters_);
    if (whole) keep_cut_window();
    requantize();
    if (whole) parts.put_back();
  }
  poll_errors();
}

void Learner::drop_window() {
  const DeviceGuard guard(device_);
  for (Parameter* p : parameters_) p->gradient().clear();
  if (sums_) sums_->drop();
  state_.flags.clear();  // from the window's forward passes
  bad_loss_.reset();
  bad_input_.clear();
  since_requantize_ -= window_microbatches_;
  end_window();
}

void Learner::set_counters(int64_t step, int64_t microbatch, int64_t since_requantize) {
  forget_recorded();
  drop_window();
  cut_window_ = {};
  state_.step = step;
  state_.microbatch = microbatch;
  since_requantize_ = since_requantize;
  optimizer_->set_steps(step);
}

}  // namespace bitgrad
