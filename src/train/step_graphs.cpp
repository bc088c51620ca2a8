#include "train/step_graphs.h"

#include <utility>

#include "bitgrad/base/log.h"

namespace bitgrad {

Learner::Graphs::Graphs(Learner& learner) : l_(learner) {
  const DeviceGuard guard(l_.device_);
  live_ = Tensor::zeros({static_cast<int64_t>(sizeof(LiveStep) / sizeof(int32_t))}, dtypes::int32, MemoryKind::kBuffer);
  for (Parameter* p : l_.model_->parameters()) p->keep_params_in_place(true);
}

Learner::Graphs::~Graphs() {
  for (Parameter* p : l_.model_->parameters()) p->keep_params_in_place(false);
}

const std::string& Learner::Graphs::why_not() {
  if (asked_) return why_not_;
  asked_ = true;
  why_not_ = l_.optimizer_->not_recorded();
  if (why_not_.empty() && !l_.loss_.recordable())
    why_not_ = "the loss is one of the program's own, which may wait for the device";
  for (const Parameter* p : l_.model_->parameters())
    if (why_not_.empty() && p->low_bit() && ste_rule(*p->spec().quant) == SteRule::kTanh)
      why_not_ = concat("the straight-through rule of '", p->path(), "' changes from step to step");
  if (!why_not_.empty()) tell_why_not();
  return why_not_;
}

void Learner::Graphs::tell_why_not() const {
  log(LogLevel::kInfo, concat("the work of a step is not recorded: ", why_not_));
}

void Learner::Graphs::forget() {
  seen_.clear();
  fronts_.clear();
  backs_.clear();
  batches_.clear();
  asked_ = false;
  // l_.parameters_ may name learned parts that are gone.
  for (Parameter* p : l_.model_->parameters()) p->keep_params_in_place(true);
}

Learner::Graphs::Form Learner::Graphs::form_of(const Tensor& x, const Target& target) const {
  const bool last = l_.window_microbatches_ + 1 == l_.policy_.accumulate;
  return {x.shape()[0],
          target.tensor.numel(),
          target.counted,
          last ? l_.window_counted_ + target.counted : 0,
          l_.window_microbatches_ == 0,
          last,
          last && l_.due_after(1).has_value()};
}

bool Learner::Graphs::serves(const Tensor& x, const Target& target) {
  if (!why_not().empty() || l_.state_.on_forward || x.device() != l_.device_) return false;
  return ++seen_[form_of(x, target)] > 1;
}

void Learner::Graphs::tell(const LiveStep& now) {
  now_ = now;
  device_backend(l_.device_).copy_from_host(live_.data(), &now_, sizeof(LiveStep));
}

bool Learner::Graphs::record(Part& part, const std::function<void()>& body) {
  part.flags = std::make_unique<FlagRecord>();
  try {
    const FlagRecord::Scope flags(*part.flags);
    const LiveScope live(static_cast<const LiveStep*>(live_.data()), now_);
    auto graph = make_step_record();
    graph->capture(body);
    part.graph = std::move(graph);
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNonFinite || error.code() == ErrorCode::kBug) throw;
    forget();
    asked_ = true;
    why_not_ = error.what();
  }
  tell_why_not();
  return false;
}

void Learner::Graphs::launch(Part& part) {
  part.graph->launch();
  part.flags->expect();
  ++launches_;
}

bool Learner::Graphs::run_front(Front& front, const Form& form, const Batch& batch) {
  if (front.graph) {
    for (Parameter* p : front.gradients) p->mark_grad();
    if (form.last) l_.optimizer_->mark();
    front.sums->forget();
  } else {
    const bool done = record(front, [&] {
      l_.round_gradients();
      {
        const Target target{batch.target, form.counted};
        Tape tape;
        l_.seed_backward(tape, l_.forward(batch.x, target, front.pending), target);
      }
      at_drain([done = front.backward] { *done = true; });
      if (!form.last) return;
      l_.check_flags("in a forward pass");
      l_.optimizer_->mark();
      l_.optimizer_->look_ahead(form.divisor, *front.sums);
    });
    if (!done) return false;
    for (Parameter* p : l_.parameters_)
      if (p->has_grad()) front.gradients.push_back(p);
  }
  launch(front);
  return true;
}

void Learner::Graphs::move_now(const Form& form) {
  const std::optional<RequantKey> due =
      form.requantize ? std::optional(RequantKey{l_.state_.seed, l_.state_.step + 1}) : std::nullopt;
  l_.optimizer_->move(due ? &*due : nullptr);
}

bool Learner::Graphs::run_back(Part& part, const Form& form) {
  if (!part.graph && !record(part, [&] { move_now(form); })) return false;
  launch(part);
  return true;
}

const Learner::Graphs::Batch& Learner::Graphs::take(const Tensor& x, const Target& target) {
  // Recorded work reads what is here, so the places stay where they are.
  Batch& batch = batches_[{x.shape()[0], target.tensor.numel()}];
  const auto put = [](const Tensor& from, Tensor& to) {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), MemoryKind::kBatch);
    to.copy_from(from);
  };
  put(x, batch.x);
  put(target.tensor, batch.target);
  return batch;
}

StepResult Learner::Graphs::microbatch(const Tensor& x, const Target& target) {
  const Form form = form_of(x, target);
  const Batch& batch = take(x, target);
  LiveStep now;
  now.step = static_cast<uint32_t>(l_.state_.step);
  now.microbatch = static_cast<uint32_t>(l_.state_.microbatch);
  tell(now);

  Front& front = fronts_[form];
  if (!run_front(front, form, batch)) {
    if (form.first)
      for (Parameter* p : l_.parameters_) p->zero_grad();
    return l_.run_one_by_one(x, target);
  }
  l_.do_meanwhile();
  StepResult result;
  result.samples = x.shape()[0];
  result.counted = target.counted;
  const int64_t before = l_.state_.microbatch;
  l_.count_microbatch(result);
  *front.backward = false;
  try {
    drain_flags();
  } catch (...) {  // a microbatch whose backward failed does not count
    if (!*front.backward) l_.state_.microbatch = before;
    throw;
  }
  front.pending.tell(result);
  if (!form.last) return result;

  result.stepped = true;
  l_.optimizer_->ready(l_.learning_rate_(l_.state_.step), form.divisor, *front.sums);
  l_.optimizer_->tell(now);
  tell(now);
  if (!run_back(backs_[form], form)) move_now(form);
  l_.optimizer_->end_step();
  l_.close_window(form.requantize);
  return result;
}

}  // namespace bitgrad
