#include "train/evaluation.h"

#include <cmath>
#include <utility>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "train/bad_input.h"
#include "train/batch_feed.h"
#include "train/step.h"

namespace bitgrad {

// Runs `work` in evaluation mode, then checks the flags.
void Learner::Evaluator::run_in_mode(const std::function<void()>& work) {
  l_.check_usable();
  NoGrad off;
  struct EvaluationMode {
    Learner& learner;
    ~EvaluationMode() {
      learner.state_.training = true;
      learner.end_sequences();
    }
  };
  l_.state_.training = false;
  const EvaluationMode mode{l_};
  try {
    work();
    l_.check_flags("in an evaluation");
    l_.do_meanwhile();
    poll_errors();
  } catch (...) {
    discard_errors();
    l_.bad_loss_.reset();
    throw;
  }
}

// If x is not finite, the error names it. On a device x is checked only after an error, since that copies it.
void Learner::Evaluator::run(const Tensor& x, const std::function<void()>& work) {
  if (l_.device_.is_cpu()) detail::check_input(x);
  try {
    run_in_mode(work);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNonFinite) detail::check_input(x);
    throw;
  }
}

Tensor Learner::Evaluator::predict(const Tensor& x) {
  Tensor logits;
  run(x, [&] { logits = l_.run_model(l_.as_planned(x)).value(); });
  return logits;
}

// Metrics with their own sums, and the output hook.
void Learner::Evaluator::run_measures(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const {
  if (l_.measures_.empty() && !l_.output_hook_) return;
  const Tensor y = outputs.on_host(), t = target.on_host();
  const DeviceGuard cpu(Device::cpu());
  for (const auto& [name, measure] : l_.measures_) (*outcome.measured)[name] = measure(y, t);
  if (l_.output_hook_) l_.output_hook_(y, t);
}

void Learner::Evaluator::measure(const Tensor& outputs, const Tensor& target, const Outcome& outcome) const {
  constexpr int64_t kFive = 5;
  if (target.dtype() == dtypes::fp32) {
    if (outputs.numel() == target.numel())
      detail::read_later(squared_error_total(outputs, target.reshape(outputs.shape())), outcome.squared_error);
  } else if (outputs.cols() > kFive) {
    detail::read_later(top_k_count(outputs, target, kFive), outcome.among_top5);
  }
  if (outcome.cross_entropy)
    detail::read_later(cross_entropy(outputs, target, Reduction::kSum).value(), outcome.cross_entropy);
  run_measures(outputs, target, outcome);
}

StepResult Learner::Evaluator::evaluate(const Tensor& x, const Tensor& given, int64_t counted, double weight) {
  const Tensor planned = l_.as_planned(x);
  const Target target = l_.checked(planned, given, counted, weight);
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  result.weight = target.weight;
  Outcome outcome;  // a device delivers loss and hits together with the flags, in one wait
  const bool classes = target.tensor.dtype() == dtypes::int32;
  if (classes && l_.loss_.name() == "softmax_cross_entropy" && !l_.loss_.plain())
    outcome.cross_entropy = Outcome::zero();
  run(x, [&] { l_.forward(planned, target, outcome); });
  outcome.write_to(result);
  if (!std::isfinite(result.loss)) detail::check_input(x);
  return result;
}

Tensor Learner::predict(const Tensor& x) {
  const DeviceGuard guard(device_);
  return Evaluator(*this).predict(x);
}

StepResult Learner::evaluate(const Tensor& x, std::span<const int32_t> labels) {
  const DeviceGuard guard(device_);
  return evaluate(x, labels_here(labels), static_cast<int64_t>(labels.size()));
}

StepResult Learner::evaluate(const Tensor& x, const Tensor& target, int64_t counted, double weight) {
  const DeviceGuard guard(device_);
  return Evaluator(*this).evaluate(x, target, counted, weight);
}

std::optional<Evaluation> detail::evaluate(Learner& learner, const Dataset& data, int64_t batch,
                                           const ResidentData* resident, int64_t samples,
                                           const std::function<bool()>& stop, const OutputHook& hook) {
  const DeviceGuard guard(learner.device());
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  BatchFeed feed(learner, data, options, resident);
  const MetricTask task{data.target_form(), learner.loss().name(), data.vocabulary()};
  struct Measuring {
    Learner& learner;
    const int64_t document_end = learner.document_end();
    ~Measuring() {
      learner.set_measures({});
      learner.set_output_hook({});
      learner.set_document_end(document_end);
    }
  } const measuring{learner};
  learner.set_document_end(data.document_end());
  learner.set_measures(measures_of(task, learner.metric_keys()));
  const Followers followers = followers_of(task, learner.metric_keys());
  learner.set_output_hook(followers.empty() ? hook : [&](const Tensor& outputs, const Tensor& target) {
    for (const auto& [name, follower] : followers) follower->add(outputs, target);
    if (hook) hook(outputs, target);
  });
  StepResult sums;
  while (sums.weight == 0 || sums.samples < samples) {
    if (stop && stop()) return std::nullopt;
    if (!feed.next()) break;
    add_sums(learner.evaluate(feed.x(), feed.target(), feed.counted(), feed.weight()), sums);
  }
  if (sums.weight == 0)
    fail_with(ErrorCode::kData, "evaluate", data.name(), ": no target of its ", sums.samples,
              " samples counts: all are ignored (ignore_label, mask), or of a class of weight 0, so no loss is defined "
              "on them. Evaluate on other samples");
  Evaluation e;
  e.samples = sums.samples;
  e.metrics = metric_values(task, sums, followers);
  e.loss = value_of(e.metrics, "loss").value();
  e.accuracy = value_of(e.metrics, "accuracy").value_or(-1);
  return e;
}

Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch) {
  return *detail::evaluate(learner, data, batch, nullptr);
}

}  // namespace bitgrad
