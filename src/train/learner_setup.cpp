// Learner: planning, order of gradient sums in a window, ranks; calibration and conversion.
#include <algorithm>
#include <utility>
#include <vector>

#include "bitgrad/ops/attention.h"
#include "bitgrad/train/learner.h"
#include "train/phases.h"
#include "train/window_sums.h"

namespace bitgrad {
namespace {

// Checks that the model returns scores, or a value, for each position of the target.
void check_outputs(const Shape& sample, const TargetForm& target) {
  const std::vector<int64_t>& dims = sample.dims();
  const bool fits = target.classes > 0
                        ? !dims.empty() && Shape(std::vector<int64_t>(dims.begin(), dims.end() - 1)) == target.shape
                        : sample.numel() == target.shape.numel();
  require(fits, "model", "the model returns ", sample, " per sample, the targets are ",
          target.classes == 0 ? concat("values ", target.shape)
          : target.shape.rank() == 0
              ? "one class for each sample. For one row of scores per sample make vectors of "
                "its axes: model.flat: true, embedding: {flat: true}"
              : concat("a class for each of ", target.shape,
                       ". For one row of scores per position keep the position axis, from "
                       "embedding: {flat: false} on; for samples of values by model.flat: false"));
}

}  // namespace

void Learner::plan(const PlanSpec& spec) {
  const auto trained = [](const Parameter* p) { return !p->spec().frozen; };
  const DeviceGuard guard(device_);
  require(!spec.trains || std::any_of(parameters_.begin(), parameters_.end(), trained), "model",
          "nothing trains: ", parameters_.empty() ? "no layer has parameters" : "all parameters are frozen");
  plan_ = spec;
  plan_and_check(*plan_);
  phases_->try_all();
}

void Learner::plan_again() {
  forget_recorded();
  const DeviceGuard guard(device_);
  for (Parameter* p : model_->parameters())
    p->memory().forget_layouts();  // parameters_ may hold learned parts that are gone
  if (plan_) plan_and_check(*plan_);
}

void Learner::plan_and_check(const PlanSpec& plan) {
  for (const bool training : {true, false}) {
    Form in;
    in.samples = training ? plan.train_samples : plan.eval_samples;
    in.sample = plan.input.sample;
    in.dtype = plan.input.dtype;
    in.values = plan.input.values;
    in.training = training;
    if (training) in.least_samples = plan.least_samples;
    const Form out = model_->plan(in);
    require(out.dtype == dtypes::fp32, "model", "the last layer returns ", out.dtype,
            ", the loss needs fp32. End with a linear, norm or dequantize layer");
    const bool values = plan.target && plan.target->classes == 0;
    // A model may have more scores than the data have ids, e.g. with a padded vocabulary: those classes never occur.
    const bool fits = plan.input.ids > 0 && !values ? out.features() >= plan.outputs : out.features() == plan.outputs;
    require(plan.outputs == 0 || fits, "model", "the last layer returns ", out.features(), " values, the data has ",
            plan.outputs, values ? " values per sample" : " classes", ". Give that layer ", plan.outputs,
            " outputs (of a preset: model.keys)");
    loss_.check_outputs(out.features());
    if (plan.target) check_outputs(out.sample, *plan.target);
  }
}

Tensor Learner::as_planned(const Tensor& x) const {
  if (!plan_ || x.shape().rank() < 1 || x.quant() || !x.contiguous()) return x;
  Form form = plan_->input;
  form.samples = x.shape()[0];
  const Shape planned = form.shape();
  return planned == x.shape() || planned.numel() != x.numel() ? x : x.reshape(planned);
}

void Learner::set_window_sum(WindowSum sum) {
  require(window_microbatches_ == 0, "Learner", "the order of sums changes inside a window");
  require(!ranks_ || sum == WindowSum::kTree, "Learner", "ranks add their gradients in a tree: got sums ",
          window_sum_name(sum));
  forget_recorded();
  const bool tree = sum == WindowSum::kTree && (policy_.accumulate > 1 || ranks_);
  sums_ = tree ? std::make_unique<detail::WindowSums>() : nullptr;
}

void Learner::set_communicator(std::shared_ptr<Communicator> ranks) {
  require(ranks != nullptr, "Learner", "no communicator");
  if (ranks->size() == 1) return;
  require(state_.microbatch == 0, "Learner", "ranks begin together, before the first microbatch: got ",
          state_.microbatch, " done");
  require(policy_.accumulate % ranks->size() == 0, "Learner", "a window of ", policy_.accumulate,
          " microbatches cannot be shared by ", ranks->size(), " ranks. Expected a multiple");
  ranks_ = std::move(ranks);
  set_window_sum(WindowSum::kTree);
}

// Updates everything that depends on the form of the model.
void Learner::settle() {
  parameters_ = model_->parameters();
  forget_recorded();
  if (sums_) sums_->drop();
  for (const Parameter* p : parameters_) detail::check_codes_that_train(*p, policy_);
  optimizer_->attach(parameters_);
  for (Parameter* p : parameters_) p->memory().forget_layouts();  // of other phases; kernel choice depends on them
  if (plan_) plan_and_check(*plan_);
}

void Learner::calibrate(std::span<const Tensor> batches) {
  const DeviceGuard guard(device_);
  std::vector<Tensor> planned;
  for (const Tensor& x : batches) planned.push_back(as_planned(x));
  if (document_end_ < 0) return bitgrad::calibrate(*model_, state_, planned);
  struct Ended {
    Learner& learner;
    ~Ended() { learner.end_sequences(); }
  } const ended{*this};
  bitgrad::calibrate(*model_, state_, planned,
                     [&](const Tensor& x) { state_.sequence.starts = document_starts(x, document_end_); });
}

void Learner::convert() {
  forget_recorded();
  const DeviceGuard guard(device_);
  bitgrad::convert(*model_);
  phases_->end();
  converted_ = true;
  settle();
}

}  // namespace bitgrad
