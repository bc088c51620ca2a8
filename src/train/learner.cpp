#include "bitgrad/train/learner.h"

#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

struct NamedLoss {
  const char* name;
  Var (*loss)(const Var&, std::span<const int32_t>);
};
constexpr NamedLoss kLosses[] = {
#define BITGRAD_LOSS(op) {#op, op},
#include "train/losses.inc"
#undef BITGRAD_LOSS
};

// Above this many microbatches a window, sums in bf16 would stall with nearest rounding.
constexpr int64_t kStochasticSums = 8;

void check_codes_that_train(const Parameter& p, const RequantPolicy& policy) {
  if (p.has_master() || p.spec().frozen || policy.every == policy.accumulate) return;
  fail("requantize_every", "parameter '", p.path(), "' has no master, so its codes change at every optimizer step of ",
       policy.accumulate, " microbatches: got requantize_every ", policy.every, ". Set it to ", policy.accumulate,
       ", or give the parameter a master");
}

}  // namespace

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const NamedLoss& l : kLosses) names.push_back(l.name);
  return names;
}

LossFunction find_loss(const std::string& name) {
  for (const NamedLoss& l : kLosses)
    if (l.name == name) return l.loss;
  fail("loss", unknown_name("loss", name, loss_names()));
}

Learner::Learner(std::shared_ptr<Module> model, LossFunction loss, const OptimizerSpec& optimizer,
                 const RequantPolicy& policy, std::function<float(int64_t)> learning_rate, uint64_t seed)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(make_optimizer(optimizer)),
      policy_(policy),
      learning_rate_(std::move(learning_rate)) {
  check_requant(policy_);
  state_.seed = seed;
  model_->initialize("layers", state_);
  parameters_ = model_->parameters();
  for (const Parameter* p : parameters_) check_codes_that_train(*p, policy_);
  optimizer_->attach(parameters_);
}

void Learner::plan(int64_t features, int64_t classes, int64_t train_rows, int64_t eval_rows) {
  require(std::any_of(parameters_.begin(), parameters_.end(), [](const Parameter* p) { return !p->spec().frozen; }),
          "model", "nothing trains: ", parameters_.empty() ? "no layer has parameters" : "all parameters are frozen");
  for (const bool training : {true, false}) {
    TensorMeta in;
    in.rows = training ? train_rows : eval_rows;
    in.features = features;
    in.training = training;
    const TensorMeta out = model_->plan(in);
    require(out.dtype == dtypes::fp32, "model", "the last layer gives ", out.dtype,
            ", the loss needs fp32. End with a linear, norm or dequantize layer");
    require(classes == 0 || out.features == classes, "model", "the last layer gives ", out.features,
            " numbers, the data has ", classes, " classes");
  }
}

void Learner::check_flags(const char* when) {
  const std::vector<std::string> raised = state_.flags.raised();
  if (raised.empty()) return;
  state_.flags.clear();
  std::string names;
  for (const std::string& n : raised) names += (names.empty() ? "" : ", ") + n;
  fail_with(ErrorCode::kNonFinite, "non-finite", "NaN or Inf ", when, " at optimizer step ", state_.step,
            " in the input of: ", names);
}

void Learner::set_total_steps(int64_t steps) {
  require(steps >= 0, "Learner", "the steps of a run must be at least 0, got ", steps);
  total_steps_ = steps;
}

void Learner::begin_microbatch() {
  state_.training = true;
  if (total_steps_ > 0)
    state_.progress = std::min(static_cast<double>(state_.step) / static_cast<double>(total_steps_), 1.0);
  for (Parameter* p : parameters_) {
    p->set_progress(state_.progress);
    if (p->grad_dtype() == dtypes::bf16)
      p->set_gradient_rounding(policy_.accumulate > kStochasticSums, state_.seed, state_.microbatch);
  }
}

void Learner::check_usable() const {
  require(
      usable(), "Learner", "an Error ended optimizer step ", state_.step,
      " in the middle of its updates: masters and codes belong to no step. Go on from the last checkpoint with a new "
      "learner; optim.fused: off finds gradients that are not finite before anything moves.");
}

std::vector<Optimizer::FusedUpdate> Learner::fused_updates() const {
  std::vector<Optimizer::FusedUpdate> updates = optimizer_->fused_updates();
  if (policy_.accumulate > 1)
    for (auto& u : updates) u.why_not = concat("gradients are summed over ", policy_.accumulate, " microbatches");
  return updates;
}

// What follows the step that ends a window after so many further microbatches.
std::optional<RequantKey> Learner::due_after(int64_t microbatches) const {
  if (!requant_due(policy_, since_requantize_ + microbatches)) return std::nullopt;
  return RequantKey{state_.seed, state_.step + 1};
}

void Learner::backward(Tape& tape, const Var& loss, int64_t samples) {
  if (policy_.accumulate > 1) return tape.backward(loss);
  check_flags("in a forward pass");
  const std::optional<RequantKey> due = due_after(1);
  optimizer_->arm(learning_rate_(state_.step), samples, due ? &*due : nullptr);
  tape.backward(loss);
}

StepResult Learner::microbatch(const Tensor& x, std::span<const int32_t> labels) {
  check_usable();
  try {
    return run_microbatch(x, labels);
  } catch (...) {
    end_failed_window();
    throw;
  }
}

StepResult Learner::run_microbatch(const Tensor& x, std::span<const int32_t> labels) {
  begin_microbatch();
  StepResult result;
  result.samples = x.rows();
  {
    Tape tape;
    const Var logits = model_->forward(x);
    const Var loss = loss_(logits, labels);
    result.loss = loss.value().item();
    result.correct = count_correct(logits.value(), labels);
    backward(tape, loss, result.samples);
  }
  ++state_.microbatch;
  ++since_requantize_;
  ++window_microbatches_;
  window_samples_ += result.samples;
  if (window_microbatches_ == policy_.accumulate) {
    end_window();
    result.stepped = true;
  }
  return result;
}

void Learner::end_window() {
  const std::optional<RequantKey> due = due_after(0);
  check_flags("in a forward pass");
  optimizer_->step(learning_rate_(state_.step), window_samples_, due ? &*due : nullptr);
  ++state_.step;
  window_microbatches_ = window_samples_ = 0;
  if (due) since_requantize_ = 0;
}

// An Error passes: gradients may hold part of a microbatch, or numbers that are not finite.
void Learner::end_failed_window() {
  optimizer_->disarm();
  if (usable()) drop_window();
}

void Learner::requantize() {
  for (Parameter* p : parameters_) p->requantize(state_.seed, state_.step);
  since_requantize_ = 0;
}

void Learner::flush() {
  check_usable();
  try {
    if (window_samples_ > 0) end_window();
  } catch (...) {
    end_failed_window();
    throw;
  }
  if (since_requantize_ > 0) requantize();
}

void Learner::drop_window() {
  for (Parameter* p : parameters_) p->zero_grad();
  state_.flags.clear();  // of the window's forward passes
  since_requantize_ -= window_microbatches_;
  window_microbatches_ = window_samples_ = 0;
}

void Learner::set_counters(int64_t step, int64_t microbatch, int64_t since_requantize) {
  drop_window();
  state_.step = step;
  state_.microbatch = microbatch;
  since_requantize_ = since_requantize;
  optimizer_->set_steps(step);
}

Tensor Learner::predict(const Tensor& x) {
  check_usable();
  NoGrad off;
  struct EvaluationMode {
    bool& training;
    ~EvaluationMode() { training = true; }
  };
  state_.training = false;
  const EvaluationMode mode{state_.training};
  const Tensor logits = model_->forward(x).value();
  check_flags("in an evaluation");
  return logits;
}

StepResult Learner::evaluate(const Tensor& x, std::span<const int32_t> labels) {
  const Tensor logits = predict(x);
  NoGrad off;
  StepResult result;
  result.samples = x.rows();
  result.loss = loss_(logits, labels).value().item();
  result.correct = count_correct(logits, labels);
  return result;
}

}  // namespace bitgrad
