#include "train/step.h"

#include <bit>
#include <utility>

#include "bitgrad/ops/attention.h"
#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "kernels/map/fill.h"
#include "train/bad_input.h"
#include "train/evaluation.h"
#include "train/window_sums.h"

namespace bitgrad {

const Learner::Step::Stage Learner::Step::kStages[] = {
    {kFront, kEachMicrobatch, &Step::forward},  //
    {kFront, kEachMicrobatch, &Step::backward},   {kFront, kEachMicrobatch, &Step::sum},
    {kFront, kWindowEnd, &Step::reduce},          {kFront, kWindowEnd, &Step::check_forward},
    {kFront, kWindowEnd, &Step::check_gradients}, {kBack, kWindowEnd, &Step::update},
    {kBack, kWindowEnd, &Step::requantize},
};

void Learner::Step::run(Part part) {
  try {
    for (const Stage& stage : kStages)
      if (stage.part == part && runs(stage)) (this->*stage.run)();
  } catch (...) {
    tape_.reset();
    loss_ = {};
    l_.end_sequences();
    throw;
  }
}

bool Learner::Step::runs(const Stage& stage) const {
  if (stage.when == kEachMicrobatch) return has_microbatch_;
  return key_.last && (stage.run == &Step::reduce || !empty());
}

Learner::Step::Step(Learner& learner, const Tensor& x, const Target& target)
    : l_(learner), x_(x), target_(target), learning_rate_(learner.learning_rate_(learner.state_.step)) {
  key_.rows = x.shape()[0];
  key_.target = target.tensor.numel();
  key_.counted = target.counted;
  key_.document_end = l_.document_end_;
  const double before = l_.window_weight();
  key_.first = before == 0;  // what was passed over did not run
  key_.last = l_.window_microbatches_ + 1 == l_.own_microbatches();
  if (!key_.last) return;
  set_decay();
  key_.divisor = before + target.weight;
  due_ = l_.due_after(1 + l_.others_microbatches());
  key_.requantize = due_.has_value();
}

Learner::Step::Step(Learner& learner)
    : l_(learner), has_microbatch_(false), learning_rate_(learner.learning_rate_(learner.state_.step)) {
  set_decay();
  key_.divisor = l_.window_weight();
  key_.last = true;
  due_ = l_.due_after(l_.others_microbatches());
  key_.requantize = due_.has_value();
}

void Learner::Step::set_decay() {
  if (l_.decay_) l_.optimizer_->set_decay(l_.decay_(l_.state_.step));
}

void Learner::Step::record_at(const Tensor& x, const Tensor& target, const Outcome& outcome) {
  x_ = x;
  target_.tensor = target;
  outcome_ = outcome;
  recorded_ = true;
}

void Learner::Step::run_one_by_one(const Tensor& x, const Target& target) {
  x_ = x;
  target_ = target;
  outcome_ = {};
  recorded_ = false;
}

void Learner::Step::forward() {
  l_.choose_gradient_rounding();
  tape_.emplace();
  loss_ = l_.forward(x_, target_, outcome_);
}

// The gradient is that of the sum over all counted elements, so a mean loss is seeded with the count. In a window of
// one microbatch, updates may run inside backward, so the forward pass is checked first.
void Learner::Step::backward() {
  if (!recorded_ && l_.policy_.accumulate == 1) {
    check_forward();
    l_.optimizer_->arm(learning_rate_, key_.divisor, due_ ? &*due_ : nullptr);
  }
  if (!l_.loss_.is_mean(target_.tensor)) {
    tape_->backward(loss_);
  } else {
    const Tensor seed = Tensor::empty(loss_.shape(), dtypes::fp32);
    run_map(maps::Fill{seed.as<float>(), static_cast<float>(target_.counted)}, seed.numel());
    tape_->backward({loss_}, {seed});
  }
  loss_ = {};
  tape_.reset();
  l_.end_sequences();
  on_poll([done = outcome_.backward_done] { *done = true; });
}

// Gradients stay in the parameters, where backward accumulates them, or become terms of the summation tree.
void Learner::Step::sum() {
  if (l_.sums_) l_.sums_->add(l_.parameters_);
}

void Learner::Step::reduce() {
  if (!l_.sums_) return;
  std::vector<double> weights = l_.window_weights_;
  if (has_microbatch_) weights.push_back(target_.weight);
  key_.divisor = l_.sums_->finish(l_.parameters_, l_.ranks_.get(), weights);
}

// On a device this only queues the check; Learner::run polls errors after the front part.
void Learner::Step::check_forward() {
  l_.check_flags("in a forward pass");
  if (!l_.bad_input_.empty()) detail::fail_input(l_.bad_input_, "");
}

void Learner::Step::begin_optimizer_step() {
  if (key_.last) l_.optimizer_->begin_step(learning_rate_, key_.divisor);
}

// Also computes what the update needs first: gradients of learned parts, and the norm for a clip.
void Learner::Step::check_gradients() {
  begin_optimizer_step();
  l_.optimizer_->reduce_norms(key_.divisor, *outcome_.sums);
}

void Learner::Step::set_scalars() { l_.optimizer_->set_scalars(learning_rate_, key_.divisor, *outcome_.sums); }

void Learner::Step::update() { l_.optimizer_->apply(due_ ? &*due_ : nullptr); }

void Learner::Step::requantize() { l_.optimizer_->requantize(due_ ? &*due_ : nullptr); }

void Learner::Outcome::write_to(StepResult& result) const {
  result.loss = *loss;
  result.correct = static_cast<int64_t>(*correct);
  result.among_top5 = static_cast<int64_t>(*among_top5);
  result.squared_error = *squared_error;
  if (cross_entropy) result.cross_entropy = *cross_entropy;
  result.measured = *measured;
}

// Sets what layers know about the positions in x. It must stay until backward, or the evaluation, is done.
Var Learner::run_model(const Tensor& x) {
  state_.sequence.starts = document_end_ < 0 ? Tensor() : document_starts(x, document_end_);
  return model_->forward(x);
}

Var Learner::forward(const Tensor& x, const Target& target, const Outcome& outcome) {
  const Var outputs = run_model(x);
  const Var loss = loss_(outputs, target.tensor);
  detail::read_later(loss.value(), outcome.loss);
  on_poll([this, sum = outcome.loss, count = loss_.is_mean(target.tensor) ? target.counted : 1] {
    *sum = count == 0 ? 0.0 : *sum * static_cast<double>(count);
    note_loss(*sum);
  });
  if (target.tensor.dtype() == dtypes::int32)
    detail::read_later(top_k_count(outputs.value(), target.tensor, 1), outcome.correct);
  if (!state_.training) Evaluator(*this).measure(outputs.value(), target.tensor, outcome);
  return loss;
}

void detail::read_later(const Tensor& number, const std::shared_ptr<double>& to) {
  if (current_device().is_cpu()) {
    *to = number.item();
    return;
  }
  constexpr int64_t kWord = sizeof(uint32_t);
  const auto word = [&](int64_t at, std::function<void(uint32_t)> take) {
    const FlagWord flag;
    device_backend(current_device())
        .copy(CopyWay::kOnDevice, flag.word(), kWord, static_cast<const uint8_t*>(number.data()) + at * kWord, kWord,
              kWord, 1);
    flag.read(std::move(take));
  };
  if (number.dtype() == dtypes::fp32)
    return word(0, [to](uint32_t bits) { *to = static_cast<double>(std::bit_cast<float>(bits)); });
  const auto low = std::make_shared<uint32_t>(0);
  const bool is_count = number.dtype() == dtypes::int64;
  word(0, [low](uint32_t bits) { *low = bits; });
  word(1, [low, to, is_count](uint32_t bits) {
    const uint64_t joined = (uint64_t{bits} << 32) | *low;
    *to = is_count ? static_cast<double>(joined) : std::bit_cast<double>(joined);
  });
}

}  // namespace bitgrad
