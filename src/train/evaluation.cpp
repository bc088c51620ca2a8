#include "train/evaluation.h"

#include <cmath>
#include <utility>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "train/bad_input.h"
#include "train/batch_feed.h"
#include "train/step_graphs.h"

namespace bitgrad {

// Runs `work` in evaluation mode, and reads what was found in its numbers.
void Learner::in_evaluation(const std::function<void()>& work) {
  check_usable();
  NoGrad off;
  struct EvaluationMode {
    bool& training;
    ~EvaluationMode() { training = true; }
  };
  state_.training = false;
  const EvaluationMode mode{state_.training};
  try {
    work();
    check_flags("in an evaluation");
    do_meanwhile();
    drain_flags();
  } catch (...) {
    drop_flags();
    bad_loss_.reset();
    throw;
  }
}

Tensor Learner::predict(const Tensor& x) {
  const DeviceGuard guard(device_);
  Tensor logits;
  evaluate_input(x, [&] { logits = model_->forward(as_planned(x)).value(); });
  return logits;
}

// in_evaluation of x, which is named where it is not finite. A device is asked when something was found.
void Learner::evaluate_input(const Tensor& x, const std::function<void()>& work) {
  if (device_.is_cpu()) detail::check_input(x);
  try {
    in_evaluation(work);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNonFinite) detail::check_input(x);
    throw;
  }
}

void Learner::run_measures(const Tensor& outputs, const Tensor& target) const {
  if (measures_.empty()) return;
  const Tensor y = outputs.on_host(), t = target.on_host();
  const DeviceGuard cpu(Device::cpu());
  for (const auto& [name, measure] : measures_) measured_[name] = measure(y, t);
}

// What metrics need beside loss and hits.
void Learner::measure(const Tensor& outputs, const Target& target, Pending& pending) const {
  constexpr int64_t kFive = 5;
  if (target.tensor.dtype() == dtypes::fp32) {
    if (outputs.numel() == target.tensor.numel())
      detail::read_later(squared_error_total(outputs, target.tensor.reshape(outputs.shape())), pending.squared_error);
  } else if (outputs.cols() > kFive) {
    detail::read_later(top_k_count(outputs, target.tensor, kFive), pending.among_top5);
  }
  run_measures(outputs, target.tensor);
}

StepResult Learner::evaluate(const Tensor& x, std::span<const int32_t> labels) {
  const DeviceGuard guard(device_);
  return evaluate(x, labels_here(labels), static_cast<int64_t>(labels.size()));
}

StepResult Learner::evaluate(const Tensor& x, const Tensor& given, int64_t counted) {
  const DeviceGuard guard(device_);
  const Tensor planned = as_planned(x);
  const Target target = checked(planned, given, counted);
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  Pending pending;  // loss and hits of a device come with the flags: one wait
  evaluate_input(x, [&] { forward(planned, target, pending, /*evaluation=*/true); });
  pending.tell(result);
  result.measured = std::exchange(measured_, {});
  if (!std::isfinite(result.loss)) detail::check_input(x);
  return result;
}

Evaluation detail::evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident) {
  const DeviceGuard guard(learner.device());
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  BatchFeed feed(learner, data, options, resident);
  const MetricTask task{data.target_form(), learner.loss().name()};
  struct Measuring {
    Learner& learner;
    ~Measuring() { learner.set_measures({}); }
  } const measuring{learner};
  learner.set_measures(measures_of(task, learner.metric_keys()));
  StepResult sums;
  while (feed.next()) {
    add_sums(learner.evaluate(feed.x(), feed.target(), feed.counted()), sums);
  }
  Evaluation e;
  e.samples = sums.samples;
  e.metrics = metric_values(task, sums);
  e.loss = value_of(e.metrics, "loss").value();
  e.accuracy = value_of(e.metrics, "accuracy").value_or(-1);
  return e;
}

Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch) {
  return detail::evaluate(learner, data, batch, nullptr);
}

}  // namespace bitgrad
