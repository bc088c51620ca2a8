#include "train/evaluation.h"

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "train/batch_feed.h"

namespace bitgrad {

Tensor Learner::predict(const Tensor& x) {
  const DeviceGuard guard(device_);
  check_usable();
  NoGrad off;
  struct EvaluationMode {
    bool& training;
    ~EvaluationMode() { training = true; }
  };
  state_.training = false;
  const EvaluationMode mode{state_.training};
  try {
    const Tensor logits = model_->forward(x).value();
    check_flags("in an evaluation");
    do_meanwhile();
    drain_flags();
    return logits;
  } catch (...) {
    drop_flags();
    throw;
  }
}

StepResult Learner::evaluate(const Tensor& x, std::span<const int32_t> labels, const Tensor& labels_there) {
  const Tensor logits = predict(x);
  const DeviceGuard guard(device_);
  NoGrad off;
  StepResult result;
  result.samples = x.rows();
  const bool there = !device_.is_cpu() && labels_there.defined();
  const LossFunction::OfTensor of_tensor = there ? loss_.of_tensor() : nullptr;
  const Var loss = of_tensor ? of_tensor(logits, labels_there) : loss_(logits, labels);
  result.loss = loss.value().item();
  result.correct =
      there ? static_cast<int64_t>(correct_count(logits, labels_there).item()) : count_correct(logits, labels);
  return result;
}

Evaluation detail::evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident) {
  const DeviceGuard guard(learner.device());
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  BatchFeed feed(learner, data, options, resident);
  Evaluation e;
  double loss = 0;
  int64_t correct = 0;
  while (feed.next()) {
    const StepResult r = learner.evaluate(feed.x(), feed.labels(), feed.labels_there());
    loss += r.loss;
    correct += r.correct;
    e.samples += r.samples;
  }
  e.loss = loss / static_cast<double>(e.samples);
  e.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(e.samples);
  return e;
}

Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch) {
  return detail::evaluate(learner, data, batch, nullptr);
}

}  // namespace bitgrad
