#include "train/step_graphs.h"

#include <utility>

#include "bitgrad/base/log.h"
#include "train/integer.h"

namespace bitgrad::detail {

StepGraphs::StepGraphs(TrainState& state) : s_(state) {
  const DeviceGuard guard(s_.device);
  live_ =
      Tensor::zeros({static_cast<int64_t>(sizeof(StepScalars) / sizeof(int32_t))}, dtypes::int32, MemoryKind::kBuffer);
  for (Parameter* p : s_.model->parameters()) p->memory().keep_params_in_place(true);
}

StepGraphs::~StepGraphs() {
  for (Parameter* p : s_.model->parameters()) p->memory().keep_params_in_place(false);
}

const std::string& StepGraphs::why_not() {
  if (asked_) return why_not_;
  asked_ = true;
  why_not_ = s_.optimizer->not_recorded();
  if (why_not_.empty() && !s_.loss.recordable())
    why_not_ = "the loss is user-defined and may synchronize with the device";
  if (why_not_.empty() && s_.loss.weighted()) why_not_ = "class weights give every window another divisor";
  if (why_not_.empty() && s_.sums) why_not_ = "the gradients of a window are added in a tree";
  if (why_not_.empty() && follows_network(s_))
    why_not_ = "its codes are those of a network of integers, which the host makes for each microbatch";
  for (const Parameter* p : s_.model->parameters())
    if (why_not_.empty() && p->low_bit() && ste_rule(*p->spec().quant) == SteRule::kTanh)
      why_not_ = concat("the straight-through rule of '", p->path(), "' changes from step to step");
  if (!why_not_.empty()) log_why_not();
  return why_not_;
}

void StepGraphs::log_why_not() const {
  log(LogLevel::kInfo, concat("the step is not recorded as a CUDA graph: ", why_not_));
}

void StepGraphs::forget() {
  seen_.clear();
  fronts_.clear();
  backs_.clear();
  batches_.clear();
  asked_ = false;
  // s_.parameters may contain dangling pointers to learned parts.
  for (Parameter* p : s_.model->parameters()) p->memory().keep_params_in_place(true);
}

bool StepGraphs::count_and_serve(const Step& step) {
  if (!why_not().empty() || s_.state.on_forward || step.x().device() != s_.device) return false;
  return ++seen_[step.key()] > 1;
}

void StepGraphs::write(const StepScalars& now) {
  now_ = now;
  device_backend(s_.device).copy_from_host(live_.data(), &now_, sizeof(StepScalars));
}

bool StepGraphs::record(Part& part, const std::function<void()>& body) {
  part.flags = std::make_unique<FlagRecord>();
  try {
    const FlagRecord::Scope flags(*part.flags);
    const LiveScope live(static_cast<const StepScalars*>(live_.data()), now_);
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
  log_why_not();
  return false;
}

void StepGraphs::launch(Part& part) {
  part.graph->launch();
  part.flags->expect();
  ++launches_;
}

// Copies the batch to where recorded work reads it, so that addresses do not change.
const StepGraphs::Batch& StepGraphs::copy(const Step& step) {
  Batch& batch = batches_[{step.key().rows, step.key().target}];
  const auto put = [](const Tensor& from, Tensor& to) {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), MemoryKind::kBatch);
    to.copy_from(from);
  };
  put(step.x(), batch.x);
  put(step.target().tensor, batch.target);
  return batch;
}

void StepGraphs::run_front(Step& step) {
  const Tensor x = step.x();
  const Target target = step.target();
  const Batch& batch = copy(step);
  StepScalars now;
  now.step = static_cast<uint32_t>(s_.state.step);
  now.microbatch = static_cast<uint32_t>(s_.state.microbatch);
  write(now);

  Front& front = fronts_[step.key()];
  step.record_at(batch.x, batch.target, front.outcome);
  if (front.graph) {
    for (Parameter* p : front.gradients) p->grad_sink().done();
    step.begin_optimizer_step();
    front.outcome.sums->forget();
  } else if (record(front, [&] { step.run_front(); })) {
    for (Parameter* p : s_.parameters)
      if (p->grad_sink().filled()) front.gradients.push_back(p);
  } else {
    if (step.key().first)
      for (Parameter* p : s_.parameters) p->grad_sink().clear();
    step.run_one_by_one(x, target);
    return step.run_front();
  }
  *front.outcome.backward_done = false;
  launch(front);
}

void StepGraphs::run_back(Step& step) {
  if (!why_not().empty()) return step.run_back();
  StepScalars now = now_;
  s_.optimizer->write_scalars(now);
  write(now);
  if (placements_ != s_.optimizer->placements()) backs_.clear();
  placements_ = s_.optimizer->placements();
  if (!s_.optimizer->not_recorded().empty()) return step.run_back();
  Part& back = backs_[step.key()];
  if (!back.graph && !record(back, [&] { step.run_back(); })) return step.run_back();
  launch(back);
}

}  // namespace bitgrad::detail
